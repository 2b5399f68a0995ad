"""Backups of a server, by snapshot and by append-only file, made and restored as docs/operating.md says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import sleep

import pytest
import redis

from tbloom import Claim, TimeBloom
from tests.helpers.account import names
from tests.helpers.flows import flow_of, lose
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis, again_and_again
from tests.helpers.making import needed
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
BEFORE, AFTER, NEVER = names(2000, "before"), names(500, "after"), names(2000, "never")
PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
#: What ``INFO persistence`` has to say, by the page.
ENDED = re.findall(r"((?:rdb|aof)_\w+):0", PAGE.partition("### Back up and restore")[2])
KINDS = [MAIN, *(pytest.param(k, marks=pytest.mark.check) for k in sorted({*BINARIES} - {MAIN}))]


class Backed:
    """A server with an append-only file, and its backup."""

    def __init__(self, server: LocalRedis, way: str, place: Path) -> None:
        self.url, self._server, self._way, self._place = server.url, server, way, place
        self._admin = redis.Redis.from_url(server.url, decode_responses=True)

    def back_up(self) -> None:
        """Copy what the server has written, while it works."""
        if self._way == "snapshot":
            self._admin.bgsave()
        else:
            self._admin.config_set("auto-aof-rewrite-percentage", 0)
        self._wait()
        shutil.copytree(self._server.folder, self._place)
        self._admin.config_set("auto-aof-rewrite-percentage", 100)

    def restore(self) -> None:
        """Kill the server, and start it with the backup; then kill it again, to see that it has stored what it has loaded."""
        self._server.kill()
        for path in self._server.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self._place.glob("dump.rdb" if self._way == "snapshot" else "appendonly*"):
            (shutil.copytree if path.is_dir() else shutil.copy)(
                path, self._server.folder / path.name
            )
        self._server.start(*(["--appendonly", "no"] if self._way == "snapshot" else []))
        self._admin.config_set("appendonly", "yes")
        self._wait()
        self._server.kill()
        self._server.start()

    def _wait(self) -> None:
        while any(self._admin.info("persistence")[field] for field in ENDED):
            sleep(0.01)


@pytest.fixture(params=["snapshot", "append-only file"])
def backed(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[Backed]:
    with LocalRedis(needed(kind), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield Backed(server, request.param, tmp_path / "backup")


@pytest.mark.parametrize(
    "store",
    [BLOOM, *(pytest.param(store, marks=pytest.mark.check) for store in (EXACT, DISTINCT))],
    ids=str,
    indirect=True,
)
@pytest.mark.parametrize("kind", KINDS, indirect=True)
async def test_backup_and_restore(backed: Backed, store: Store, driver: str, name: str) -> None:
    """Items that were added since are new again; nothing else has changed (redis-lua-scaling-bloom-filter#13). Clients need no restart.

    Redis loads a snapshot only with ``appendonly no`` (redis#12762).
    """
    patient = {**store.sharded, "retry_for": 60}
    living = store.awaited(backed.url, name, driver=driver, **patient)
    assert all(await living.add_many(BEFORE))
    backed.back_up()
    assert all(await living.add_many(AFTER))
    with store.open(backed.url, name, **patient) as asking:
        answers = list[bool]()
        with again_and_again(lambda: answers.extend(asking.contains_many(NEVER))):
            backed.restore()
    assert {False} == {*answers}
    with store.open(backed.url, name, **store.sharded) as fresh:
        assert not any(fresh.contains_many([*AFTER, *NEVER]))
        assert all(await living.contains_many(BEFORE))
        assert len(BEFORE) == store.held(fresh)
        assert all(await living.add_many(AFTER))
        assert not any(fresh.add_many([*BEFORE, *AFTER]))
        assert len(BEFORE) + len(AFTER) == store.held(fresh)
        assert () == fresh.info().warnings
    await living.aclose()


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_backup_and_restore_of_slices_and_claims(backed: Backed, name: str) -> None:
    """Slices that have ended since are gone. What was cleared is back. A call without a reply can be repeated."""
    open_one = partial(TimeBloom.from_url, backed.url, retry_for=60)
    with ExitStack() as stack:
        living, other = (stack.enter_context(open_one(name, session_ttl=3600)) for _ in range(2))
        ended = stack.enter_context(open_one(name, session_ttl=1))
        short = stack.enter_context(open_one(f"{name}-short", granularity="1s", slices=1))
        cleared = stack.enter_context(open_one(f"{name}-cleared"))
        assert [NEW, NEW] == living.claim_many(["done", "under way"])
        assert NEW is ended.claim("of an ended session")
        assert [True, True] == [short.add("a"), cleared.add("a")]
        backed.back_up()
        living.commit("done")
        assert NEW is living.claim("later")
        lose(living.client, flow_of(living, "add", "without a reply"))
        ended.commit("of an ended session")
        ended.close()
        cleared.clear()
        while short.contains("a"):
            sleep(0.01)
        backed.restore()
        assert [True, True] == ["a" in cleared, short.add("a")]
        assert [True, False] == [living.add("without a reply") for _ in range(2)]
        while NEW is not other.claim("of an ended session"):
            sleep(0.01)
        # Claims are those of the backup: a living session keeps them until it ends, even if it has committed them since.
        assert [BUSY, BUSY, NEW] == other.claim_many(["done", "under way", "later"])
        assert [True, False] == [living.commit("under way"), living.commit("later")]
        assert SEEN is other.claim("under way")
        living.close()
        assert NEW is other.claim("done")
        assert () == other.info().warnings
