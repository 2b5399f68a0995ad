"""Expressions of sets, and their evaluation (see ``tbloom.distinct.sets``). No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_, sub, xor
from typing import TYPE_CHECKING

from tbloom.distinct.reading import Reader
from tbloom.distinct.selection import Selection
from tbloom.engine.flow import Flow

if TYPE_CHECKING:
    from pyroaring import BitMap

_OPERATORS = {"and": and_, "or": or_, "xor": xor, "sub": sub}


@dataclass(frozen=True, slots=True)
class Combination:
    """Two or more sets, combined from left to right."""

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
    """The number of ids."""
    if isinstance(expression, Selection):
        return (yield from reader.count(expression))
    found = yield from _read(reader, expression)
    *first, last = expression.terms
    left = _value(Combination(expression.operation, tuple(first)), found)
    return _size(expression.operation, left, _value(last, found))


def evaluate(reader: Reader, *expressions: Expression) -> Flow[list[BitMap]]:
    """The ids of each expression, read together. They must not be changed."""
    found = yield from _read(reader, *expressions)
    return [_value(expression, found) for expression in expressions]


def _read(reader: Reader, *expressions: Expression) -> Flow[Mapping[Selection, BitMap]]:
    return (yield from reader.read([each for one in expressions for each in selections_of(one)]))


def _value(expression: Expression, found: Mapping[Selection, BitMap]) -> BitMap:
    if isinstance(expression, Selection):
        return found[expression]
    values: Sequence[BitMap] = [_value(term, found) for term in expression.terms]
    return reduce(_OPERATORS[expression.operation], values)


def _size(operation: str, left: BitMap, right: BitMap) -> int:
    """The number of ids of a combination, which is not made for that."""
    sizes = {
        "and": left.intersection_cardinality,
        "or": left.union_cardinality,
        "xor": left.symmetric_difference_cardinality,
        "sub": left.difference_cardinality,
    }
    return sizes[operation](right)
