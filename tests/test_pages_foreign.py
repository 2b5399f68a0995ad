"""A page store whose files somebody else has written, or whose path is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbloom.errors import ConfigError
from tbloom.pages import PageStore, record, segments

URL = "https://example.com/"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"WARC/1.1", b"WORC/1.1"),
        (b"Block-Digest: sha1:", b"Block-Digest: sha1:?"),
        (b"Block-Digest: sha1:", b"Block-Digest: md55:"),
    ],
)
def test_verify_names_a_record_that_warcio_can_t_read(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    """Its gzip member is whole, and what the index must know of it is there."""
    with PageStore(tmp_path) as store:
        store.put(URL, b"body")
    [segment] = tmp_path.glob("*.warc.gz")
    data = segment.read_bytes()
    _, found = segments.scan(segment, 0, len(data))
    block = record.block_of(data[found.offset :])
    segment.write_bytes(data[: found.offset] + record.member(block.replace(old, new)))
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path, readonly=True) as store:
        [problem] = store.verify().problems
    assert problem.startswith(f"{segment}: the record at {found.offset} is damaged: ")


def test_a_path_that_can_be_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one too: it is a variable that was never set, not the folder that we are in."""
    monkeypatch.chdir(tmp_path)
    for readonly in (False, True):
        with pytest.raises(ConfigError, match="a folder, or a place for one, got ''"):
            PageStore("", readonly=readonly)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"a folder, or a place for one, got .*file"):
        PageStore(tmp_path / "file")
    assert [tmp_path / "file"] == [*tmp_path.iterdir()]
