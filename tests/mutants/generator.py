"""Make mutants of a source file: the same program with one small fault. Python's come from its syntax tree, Lua's from tokens.

A mutant's name is stable: ``tbloom/bloom/layout.py:120:8 < -> <=``. The place is a line from 1 and a column from 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """A file with one change."""

    file: str
    line: int
    column: int
    change: str
    #: The whole file.
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        """The place and the change."""
        return f"{self.file}:{self.line}:{self.column} {self.change}"


def mutants_of(root: Path, file: str) -> Iterator[Mutant]:
    """Return all mutants of a file of the tree, in the order of its syntax."""
    source = (root / file).read_text(encoding="utf-8")
    return (_of_lua if file.endswith(".lua") else _of_python)(file, source)


REMOVED = "statement removed"
NEGATED = "condition negated"

# Python

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
#: Functions, of both languages.
FUNCTIONS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor",
}  # fmt: skip
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip

#: A node that gives the place, the change, the node to replace, and what replaces it.
Change = tuple[ast.expr | ast.stmt, str, ast.expr | ast.stmt, str]


def _of_python(file: str, source: str) -> Iterator[Mutant]:
    encoded = source.encode()
    starts = [0]
    for line in encoded.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _nodes(ast.parse(source)):
        for place, change, old, new in _changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            text = (encoded[:start] + new.encode() + encoded[end:]).decode()
            yield Mutant(file, place.lineno, place.col_offset, change, text)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that are executed.

    Leave out f-strings, inside which Python before 3.12 gives wrong places, and patterns, which take no expressions.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.pattern):
                yield from _nodes(child)


def _changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.expr():
            for place, change, new in _other_expressions(node):
                # In parentheses, so that the expression around it stays as it is.
                yield place, change, node, f"({ast.unparse(new)})"
        case ast.stmt():
            yield from _other_statements(node)
    for test in _conditions(node):
        if _is_negatable(test):
            yield test, NEGATED, test, f"(not ({ast.unparse(test)}))"


def _other_expressions(node: ast.expr) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    match node:
        case ast.Compare():
            yield from _other_comparisons(node)
        case ast.BoolOp(op, values):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, _swap(type(op), type(swapped)), ast.BoolOp(swapped, values)
        case ast.BinOp(left, op, right) if calculated := CALCULATED.get(type(op)):
            yield right, _swap(type(op), calculated), ast.BinOp(left, calculated(), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, "not removed", operand
        case ast.UnaryOp(ast.USub(), operand):
            yield node, "- removed", operand
        case ast.Constant(bool() as value):
            yield node, f"{value} -> {not value}", ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield node, f"{value} -> {value + 1}", ast.Constant(value + 1)
        case ast.Call(ast.Name(name), args, keywords) if other_name := FUNCTIONS.get(name):
            yield node, f"{name} -> {other_name}", ast.Call(ast.Name(other_name), args, keywords)


def _other_comparisons(node: ast.Compare) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    for at, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        for other in COMPARED[type(op)]:
            ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
            yield right, _swap(type(op), other), ast.Compare(node.left, ops, node.comparators)


def _other_statements(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(ast.Constant()):
            pass  # a docstring
        case (
            ast.Expr()
            | ast.Delete()
            | ast.Raise()
            | ast.Break()
            | ast.Continue()
            | ast.Assign([ast.Attribute() | ast.Subscript()])
        ):
            yield node, REMOVED, node, "pass"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None", node, "return None"
        case ast.AugAssign(target, op, value) if other := CALCULATED.get(type(op)):
            changed = ast.AugAssign(target, other(), value)
            yield value, f"{SYMBOLS[type(op)]}= -> {SYMBOLS[other]}=", node, ast.unparse(changed)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            return [test]
        case ast.comprehension(ifs=tests):
            return tests
    return []


def _is_negatable(test: ast.expr) -> bool:
    """Return whether no other change negates it."""
    match test:
        case ast.Constant() | ast.UnaryOp(ast.Not()) | ast.Compare(ops=[_]):
            return False
    return True


def _swap(old: type[ast.AST], new: type[ast.AST]) -> str:
    return f"{SYMBOLS[old]} -> {SYMBOLS[new]}"


# Lua

TOKEN = re.compile(
    r"""(?P<comment> --\[\[.*?\]\] | --[^\n]*)
      | (?P<string>  '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | \[\[.*?\]\])
      | (?P<number>  0[xX][0-9a-fA-F]+ | \d+(?:\.\d+)?)
      | (?P<name>    [A-Za-z_]\w*)
      | (?P<symbol>  \.\.\.? | [=~<>]= | [-+*/%^\#<>=(){}\[\];:,.])""",
    re.VERBOSE | re.DOTALL,
)
LUA_COMPARED = {
    "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
    "==": ("~=",), "~=": ("==",),
}  # fmt: skip
LUA_SWAPPED = FUNCTIONS | {
    "and": "or", "or": "and", "true": "false", "false": "true",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "*",
}  # fmt: skip
LUA_OPENING, LUA_CLOSING = {"(", "[", "{"}, {")", "]", "}"}
LUA_ENDING = {"end", "else", "elseif", "until"}
#: A statement may begin right after these words.
LUA_BEGINNING = {"then", "do", "else", "repeat"}
#: Words in whose midst an expression goes on.
LUA_JOINING = {
    "and", "or", "not", "return", "in", "local", "function", "if", "elseif", "while", "until", "for",
}  # fmt: skip
LUA_KEYWORDS = LUA_ENDING | LUA_BEGINNING | LUA_JOINING | {"nil", "true", "false"}


@dataclass(frozen=True)
class Token:
    """A word, a number, a string or a symbol of Lua."""

    kind: str
    text: str
    start: int
    line: int
    column: int

    @property
    def end(self) -> int:
        """The place after it."""
        return self.start + len(self.text)

    @property
    def is_open(self) -> bool:
        """Whether an expression goes on after it."""
        is_symbol = self.kind == "symbol" and self.text not in LUA_CLOSING
        return is_symbol or self.text in LUA_JOINING


def _tokens(source: str) -> list[Token]:
    found = [match for match in TOKEN.finditer(source) if match.lastgroup != "comment"]
    lines = [source.count("\n", 0, match.start()) + 1 for match in found]
    columns = [match.start() - source.rfind("\n", 0, match.start()) - 1 for match in found]
    return [
        Token(match.lastgroup or "", match[0], match.start(), line, column)
        for match, line, column in zip(found, lines, columns, strict=True)
    ]


def _of_lua(file: str, source: str) -> Iterator[Mutant]:
    tokens = _tokens(source)
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        changes = [(change, token.end, new) for change, new in _other_tokens(token, before)]
        if (last := _last_of_statement(tokens, at)) is not None:
            changes.append((REMOVED, last.end, ""))
        if condition := _condition(tokens, at):
            end = condition[-1].end
            changes.append((NEGATED, end, f"not ({source[token.start : end]})"))
        for change, end, new in changes:
            text = source[: token.start] + new + source[end:]
            yield Mutant(file, token.line, token.column, change, text)


def _other_tokens(token: Token, before: Token | None) -> Iterator[tuple[str, str]]:
    """Return changes, each with the text that takes the token's place."""
    text = token.text
    if token.kind == "string" and re.fullmatch(r"\d+", text[1:-1]):
        yield f"{text} -> '{int(text[1:-1]) + 1}'", f"'{int(text[1:-1]) + 1}'"
    elif token.kind == "number":
        number = int(text, 0) if re.fullmatch(r"0[xX].*|\d+", text) else float(text)
        yield f"{text} -> {number + 1}", str(number + 1)
    elif token.kind == "string":
        pass
    elif text == "not":
        yield "not removed", ""
    elif text == "-" and (before is None or before.is_open):
        yield "- removed", ""
    elif text in LUA_SWAPPED:
        yield f"{text} -> {LUA_SWAPPED[text]}", LUA_SWAPPED[text]
    else:
        for other in LUA_COMPARED.get(text, ()):
            yield f"{text} -> {other}", other


def _last_of_statement(tokens: Sequence[Token], first: int) -> Token | None:
    """Return the last token of the call, assignment, ``return`` or ``break`` that begins here; None if none does."""
    token, before = tokens[first], tokens[first - 1] if first else None
    is_first = before is None or (before.line < token.line and not before.is_open)
    is_begun = is_first or (before is not None and before.text in LUA_BEGINNING)
    if token.kind != "name" or not is_begun or token.text in LUA_KEYWORDS - {"return"}:
        return None
    depth = 0
    for at in range(first, len(tokens)):
        token, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
        if token.text == "function":
            return None
        depth += (token.text in LUA_OPENING) - (token.text in LUA_CLOSING)
        if after is None or (depth == 0 and after.text in LUA_ENDING):
            return token
        goes_on = token.is_open or after.kind == "symbol" or after.text in {"and", "or"}
        if depth == 0 and after.line > token.line and not goes_on:
            return token
    return None


def _condition(tokens: Sequence[Token], first: int) -> Sequence[Token]:
    """Return the condition that begins here; nothing if none does, or if another change negates it."""
    ends = {"if": "then", "elseif": "then", "while": "do"}
    if not first or tokens[first - 1].text not in ends:
        return ()
    end = ends[tokens[first - 1].text]
    last = next(at for at in range(first, len(tokens)) if tokens[at].text == end)
    condition = tokens[first:last]
    words = {token.text for token in condition}
    is_negated_elsewhere = tokens[first].text == "not" or not words.isdisjoint(LUA_COMPARED)
    return () if is_negated_elsewhere and words.isdisjoint({"and", "or"}) else condition
