"""Integer expressions in ``lane`` from a command line: evaluated over the tree, never with eval().

The operators are Python's and C's where both agree, and ``/`` divides as ``//`` does, so an address can be
copied out of a kernel: ``(lane % 16) * 256 + lane / 16 * 16``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from ladder.errors import LadderError

_LARGEST = 2**48
_LONGEST = 2000


class ExpressionError(LadderError, ValueError):
    """An expression that is no whole number for every lane."""


def _shift(direction: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def shift(value: int, by: int) -> int:
        if not 0 <= by <= 48:
            raise ExpressionError(f"a shift by {by} bits")
        return direction(value, by)

    return shift


_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: _shift(operator.lshift),
    ast.RShift: _shift(operator.rshift),
}
_UNARY: Mapping[type[ast.unaryop], Callable[[int], int]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: lambda value: int(not value),
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "abs": abs}


class Expression:
    """A parsed expression; call it with the values of its variables.

    Allowed: whole numbers, the names given, ``+ - * / // % & | ^ ~ << >>``, comparisons, ``and``, ``or``,
    ``not``, ``a if c else b``, ``min``, ``max``, ``abs``. Raises :class:`ExpressionError`.
    """

    def __init__(self, text: str, names: tuple[str, ...] = ("lane",)) -> None:
        self.text = text
        self._names = names
        if len(text) > _LONGEST:
            raise ExpressionError(f"an expression of {len(text)} characters; at most {_LONGEST} are taken")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            self._check(self._tree)
        except SyntaxError as error:
            where = " " * max((error.offset or 1) - 1, 0) + "^"
            raise ExpressionError(f"this is no expression:\n{text.strip()}\n{where}") from None
        except (RecursionError, MemoryError, ValueError) as error:
            if isinstance(error, ExpressionError):
                raise
            raise ExpressionError(f"this is no expression: {text[:60]}...") from None

    def __call__(self, **values: int) -> int:
        try:
            return self._value(self._tree, values)
        except ZeroDivisionError:
            given = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise ExpressionError(f"{self.text} divides by 0 for {given}") from None
        except RecursionError:
            raise ExpressionError(f"{self.text[:60]}... is nested too deeply") from None

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and node.id not in (*self._names, *_FUNCTIONS):
            raise ExpressionError(f"{node.id!r} has no meaning here", f"There is {', '.join(self._names)}.")
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            raise ExpressionError(f"{node.value!r} is no whole number")
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and node.args and not node.keywords
        ):
            raise ExpressionError(f"there is no function {ast.unparse(node.func)}", "There is min, max, abs.")
        known = (ast.Name, ast.Constant, ast.Call, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.BoolOp, ast.Compare)
        if not isinstance(node, known):
            raise ExpressionError(f"{ast.unparse(node)} is more than arithmetic")
        for operation in (getattr(node, "op", None), *getattr(node, "ops", ())):
            if operation is not None and not isinstance(
                operation, (*_BINARY, *_UNARY, *_COMPARISONS, ast.And, ast.Or)
            ):
                raise ExpressionError(f"{ast.unparse(node)} has an operator that is not taken here")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._check(child)

    def _value(self, node: ast.expr, values: Mapping[str, int]) -> int:
        result = self._unbounded(node, values)
        if abs(result) > _LARGEST:
            raise ExpressionError(f"{ast.unparse(node)} is larger than any address")
        return result

    def _unbounded(self, node: ast.expr, values: Mapping[str, int]) -> int:
        if isinstance(node, ast.Constant):
            return int(str(node.value))
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](self._value(node.left, values), self._value(node.right, values))
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._value(node.operand, values))
        if isinstance(node, ast.IfExp):
            return self._value(node.body if self._value(node.test, values) else node.orelse, values)
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            return int(any(bool(self._value(part, values)) == wanted for part in node.values) == wanted)
        if isinstance(node, ast.Compare):
            parts = [self._value(part, values) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, parts, parts[1:], strict=False)
            return int(all(_COMPARISONS[type(kind)](a, b) for kind, a, b in pairs))
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        arguments = [self._value(argument, values) for argument in node.args]
        if node.func.id != "abs" and len(arguments) < 2:
            raise ExpressionError(f"{ast.unparse(node)} needs two values or more")
        if node.func.id == "abs" and len(arguments) != 1:
            raise ExpressionError(f"{ast.unparse(node)} needs one value")
        return _FUNCTIONS[node.func.id](*arguments)
