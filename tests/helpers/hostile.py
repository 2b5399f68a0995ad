"""Arguments of every wrong kind."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tbloom import ConfigError


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


#: Values of every wrong kind.
anything = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers(),
    st.text(max_size=20) | st.binary(max_size=5) | st.lists(st.integers(), max_size=2),
    st.timedeltas() | st.dates() | st.fractions() | st.decimals(),
    st.sampled_from([10**5000, -(10**400), 2**63, "x" * 65536, object, {}, _Unprintable()]),
    st.sampled_from(["..", "/etc/passwd", "a\0b", "Europe", "posixrules", "h\0", "9" * 5000 + "s"]),
)


def refused(call: Callable[[], object]) -> str | None:
    """The argument that a ConfigError names in a complete message, or None if the call works."""
    try:
        call()
    except ConfigError as error:
        refusal = error
    else:
        return None
    assert str(refusal).startswith(f"{refusal.argument}: expected {refusal.expected}, got ")
    assert len(str(refusal)) < 1000
    return refusal.argument
