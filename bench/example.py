"""Makes docs/report.png: ``tbloom report`` of a crawler's week, on a real server whose clock is set.

Needs Debian's packages chromium and faketime: ``.venv/bin/python bench/example.py``.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tbloom import TimeBloom  # noqa: E402
from tbloom.bloom.info import FilterInfo  # noqa: E402
from tbloom.cli.commands.report import page  # noqa: E402
from tests.helpers import browser, servers  # noqa: E402

#: New pages of each day; the fifth exceeds the planned capacity.
DAYS = (84_000, 91_500, 88_200, 79_400, 131_000, 86_900, 38_700)


def week(name: str = "news") -> FilterInfo:
    """The filter after these days, at 11 in the morning of the last."""
    with tempfile.TemporaryDirectory() as folder:
        clockwork = servers.Clockwork(Path(folder), busy=True)
        with (
            clockwork.server,
            TimeBloom.from_url(clockwork.server.url, name, capacity=100_000) as seen,
        ):
            for day, pages in enumerate(DAYS):
                clockwork.set(f"2019-06-{3 + day:02d} 11:00:00")
                seen.add_many(f"https://example.com/{day}/{page}" for page in range(pages))
            return seen.info()


if __name__ == "__main__":
    made = datetime(2019, 6, 9, 11, 0, 0, tzinfo=timezone.utc)
    html = page([week()], "redis://redis.example.com:6379/0", made)
    browser.picture(html, ROOT / "docs" / "report.png", width=1000, height=1440)
