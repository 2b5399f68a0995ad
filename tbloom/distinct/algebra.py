"""Expressions of sets, and their evaluation (see ``tbloom.distinct.sets``). No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from tbloom.distinct.reading import Reader
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import Selection
from tbloom.engine.flow import Flow

if TYPE_CHECKING:
    from pyroaring import BitMap


@dataclass(frozen=True, slots=True)
class Combination:
    """Sets, combined from left to right by the method of pyroaring's ``BitMap`` with this name."""

    operation: str
    terms: tuple[Expression, ...]


Expression = Selection | Combination


def combine(operation: str, left: Expression, right: Expression) -> Combination:
    """``left`` and ``right`` combined; a chain of one operation is one combination, so that it may be long."""
    if isinstance(left, Combination) and left.operation == operation:
        return Combination(operation, (*left.terms, right))
    return Combination(operation, (left, right))


def selections_of(expression: Expression) -> Iterator[Selection]:
    """The slices that an expression names."""
    if isinstance(expression, Selection):
        yield expression
    else:
        for term in expression.terms:
            yield from selections_of(term)


def count(reader: Reader, expression: Expression) -> Flow[int]:
    """The number of ids of a combination, which is not made for that; or of one selection."""
    if isinstance(expression, Selection):
        return (yield from reader.count(expression))
    *first, last = expression.terms
    left, right = yield from evaluate(reader, Combination(expression.operation, tuple(first)), last)
    size: int = getattr(left, f"{expression.operation}_cardinality")(right)
    return size


def evaluate(reader: Reader, *expressions: Expression) -> Flow[list[BitMap]]:
    """The ids of each expression, read together. They must not be changed."""
    found = yield from reader.read([each for one in expressions for each in selections_of(one)])
    return [_value(expression, found) for expression in expressions]


def _value(expression: Expression, found: Mapping[Selection, BitMap]) -> BitMap:
    if isinstance(expression, Selection):
        return found[expression]
    values = [_value(term, found) for term in expression.terms]
    return reduce(getattr(bitmaps(), expression.operation), values)
