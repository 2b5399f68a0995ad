"""Items from anywhere: whatever bytes they are, they are data to the client, the scripts and the server."""

from __future__ import annotations

from itertools import count

import redis
from hypothesis import example, given
from hypothesis import strategies as st

from tbloom import TimeBloom

#: Text that a parser on the way might take for its own syntax.
SNIPPETS = [
    b"\0",
    b"\xff" * 16,
    b"\r\n",
    b"*1\r\n$8\r\nFLUSHALL\r\n",
    b"$-1\r\n",
    b"'); redis.call('FLUSHALL') --",
    b"]] return redis.call('FLUSHALL') --[[",
    b"{other}:config",
    b"}{",
    b"64 65 66|67",
    b"1:1",
    b"%s%n%(spider)s",
    "e\u0301".encode(),
    "\U0001f577\u200d\U0001f578".encode(),
    "\N{RIGHT-TO-LEFT OVERRIDE}".encode(),
]
_unicode = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
_items = st.binary(min_size=1, max_size=200) | _unicode.map(str.encode) | st.sampled_from(SNIPPETS)
#: Up to 1 MB.
_long_items = st.builds(
    lambda item, size: (item * (size // len(item) + 1))[:size], _items, st.integers(1, 1 << 20)
)
_numbers = count()


@given(_items | _long_items)
@example(b"\0" * (1 << 20))
@example(b"a")
def test_every_item_is_new_once_and_only_the_filters_keys_exist(
    own: redis.Redis, item: bytes
) -> None:
    name = f"items-{next(_numbers)}"
    own.flushall()
    seen = TimeBloom(own, name, capacity=1000)
    assert [False, True, False] == [item in seen, seen.add(item), seen.add(item)]
    assert [True, False] == [item in seen, b"not " + item in seen]
    assert [False, True] == seen.add_many([item, b"not " + item])
    keys = own.keys()
    assert keys
    assert all(key.startswith(f"{{{name}}}:".encode()) for key in keys), keys
