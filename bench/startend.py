"""The first request of a crawl, and its end, beside plain Scrapy, with a server that is near or far away."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from scrapy.http import TextResponse

from bench import onecrawler
from bench.onecrawler import WAYS, Figures, figures_of, site, started
from bench.progress import shown
from bench.serving import child
from bench.tables import Table

if TYPE_CHECKING:
    from bench.serving import Server


class One(onecrawler.Pages):
    """Fetch one page. Tell when that begins and ends."""

    def parse(self, response: TextResponse) -> Any:
        yield {"url": response.url}
        self.parsed += 1
        self.times = {"asked": time.time() - response.meta["download_latency"], "had": time.time()}

    def figures(self) -> Figures:
        """Return the times of the request and of its response (s)."""
        return self.times


def measure(server: Server, *, away: Sequence[int] = (0, 50), rounds: int = 5) -> Table:
    """Return the medians of the rounds, in which the ways take turns. ``away``: the round trips to the server (ms)."""
    spent: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for far in away:
        with (
            site(1) as address,
            child("-m", "bench.startend", "far", str(server.port), str(far)) as port,
        ):
            for _ in shown(range(rounds), f"crawls with a server {far} ms away"):
                for way, given in WAYS.items():
                    url = f"redis://127.0.0.1:{port}/0"
                    job = {"settings": {"REDIS_URL": url, **given}, "arguments": {"site": address}}
                    begun = time.time()
                    found = figures_of(way, started(job, "bench.startend"))
                    ended = time.time() - found["had"]
                    spent.setdefault((way, far), []).append((found["asked"] - begun, ended))
                    server.empty()
    columns = {"": "", "server away (ms)": "d", "first request (s)": ".2f", "end (s)": ".2f"}
    rows = [[*case, *map(median, zip(*times, strict=True))] for case, times in spent.items()]
    return Table("fleet-start-end", columns, rows)


async def _forward(port: int, far: float) -> None:
    """Forward to a port of this machine, each direction by half of the round trip later (s)."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while part := await reader.read(1 << 16):
            loop.call_later(far / 2, writer.write, part)
        loop.call_later(far / 2, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, to_server[1]), pipe(to_server[0], writer))

    near = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(near.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "far":
        asyncio.run(_forward(int(sys.argv[2]), int(sys.argv[3]) / 1000))
    else:
        print(json.dumps(onecrawler.crawl(json.loads(sys.argv[2]), One)))
