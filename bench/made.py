"""Pages like Debian's documentation, in any number, none like another one: made from their number alone."""

from __future__ import annotations

import random

from stored import RealPages

#: A page is made of pieces of the real pages, drawn from a neighbourhood of as many again: such pages compress
#: nearly as well as the real ones (measured: see ``pages_large``).
PIECE_BYTES = 4000
_AROUND = 2


class MadePages:
    """Pages with lengths, words and headers of real ones."""

    def __init__(self, real: RealPages) -> None:
        """As ``real`` has them."""
        self.real = real
        self._lengths = [len(body) for body in real.bodies]
        self._pieces = [
            body[at : at + PIECE_BYTES]
            for body in real.bodies
            for at in range(0, len(body) - PIECE_BYTES + 1, PIECE_BYTES)
        ]

    def url(self, number: int) -> str:
        """The address of the page of this number, from 0 on."""
        return self.real.url(number)

    def body(self, number: int) -> bytes:
        """The body of the page of this number, always the same."""
        rng = random.Random(number)
        length = self._lengths[number % len(self._lengths)]
        count = -(-length // PIECE_BYTES)
        begin = rng.randrange(max(1, len(self._pieces) - _AROUND * count))
        drawn = rng.sample(self._pieces[begin : begin + _AROUND * count], count)
        return b"".join([b"<!-- page %d -->\n" % number, *drawn])[:length]

    def headers(self, number: int) -> dict[str, str]:
        """As a web server sends them."""
        return self.real.headers(number)

    @property
    def mean_bytes(self) -> float:
        """The mean length of a body."""
        return sum(self._lengths) / len(self._lengths)
