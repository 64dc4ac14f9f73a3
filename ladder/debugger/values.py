"""Typed values in the memory of a stopped launch, and expressions of them."""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ladder.debugger.debug_info import Type
from ladder.errors import LadderError

#: Encodings of base types in DWARF.
_BOOLEAN, _FLOAT, _SIGNED, _SIGNED_CHARACTER = 0x02, 0x04, 0x05, 0x06
_FLOATS = {2: "e", 4: "f", 8: "d"}
#: Structs that are one number.
_HALVES = {"__half": "half", "__nv_bfloat16": "bfloat16"}
#: The windows of the emulator's generic addresses, by the highest byte; any other is global memory.
_WINDOWS = {1: "shared", 2: "local", 3: "param"}
#: Elements of an array that are shown.
MOST_ELEMENTS = 1024


class NoValue(LadderError):
    """An expression has no value here; the message says why."""


#: Reads so many bytes from an offset on; None: there are none.
Read = Callable[[int, int], bytes | None]


@dataclass(frozen=True)
class Value:
    """A value of ``type``; ``follow`` reads the memory that a pointer points to. ``base`` is the address of
    the memory that ``read`` reads, if it has one.
    """

    type: Type
    read: Read
    follow: Callable[[int], Read]
    offset: int = 0
    base: int | None = None

    @property
    def address(self) -> int:
        """Where it lies. Raises :class:`NoValue` for registers and the like."""
        if self.base is None:
            raise NoValue("it is in a register or in local memory")
        return self.base + self.offset

    def _part(self, kind: Type, offset: int) -> Value:
        return Value(kind, self.read, self.follow, self.offset + offset, self.base)

    def raw(self) -> bytes:
        found = self.read(self.offset, self.type.bytes)
        if found is None:
            raise NoValue("that memory cannot be read")
        return found

    def number(self) -> int | float:
        """The number of a scalar, the address of a pointer. Raises :class:`NoValue` for anything else."""
        kind, data = self.type.kind, self.raw()
        if kind == "base" and self.type.encoding == _FLOAT and len(data) in _FLOATS:
            return float(struct.unpack(_FLOATS[len(data)], data)[0])
        if kind in ("base", "enum", "pointer"):
            signed = self.type.encoding in (_SIGNED, _SIGNED_CHARACTER)
            return int.from_bytes(data, "little", signed=signed)
        if self.type.name in _HALVES:
            return _half(self.type.name, data)
        raise NoValue(f"{self.type.name} is no number; name a member or an element")

    def member(self, name: str) -> Value:
        if self.type.kind == "pointer":
            return self.target(0).member(name)
        for own, kind, offset in self.type.members:
            if own == name:
                return self._part(kind, offset)
            if not own or own == kind.name:  # an anonymous member, or a base class
                try:
                    return self._part(kind, offset).member(name)
                except NoValue:
                    continue
        names = ", ".join(own for own, _, _ in self.type.members) or "none"
        raise NoValue(f"{self.type.name} has no member {name}; there are {names}")

    def element(self, index: int) -> Value:
        if self.type.kind == "pointer":
            return self.target(index)
        element, count = self.type.target, self.type.count
        if self.type.kind != "array" or element is None:
            raise NoValue(f"{self.type.name} has no elements")
        if index < 0 or (count is not None and index >= count):
            raise NoValue(f"{self.type.name} has no element {index}")
        return self._part(element, index * element.bytes)

    def target(self, index: int) -> Value:
        """What a pointer points to, ``index`` elements further."""
        if self.type.kind != "pointer" or self.type.target is None:
            raise NoValue(f"{self.type.name} points to nothing")
        address, element = int(self.number()), self.type.target
        return Value(element, self.follow(address), self.follow, index * element.bytes, address)

    def plain(self, most: int = MOST_ELEMENTS) -> Any:
        """The value as JSON can hold it: a number or text, a list of at most so many elements, a dict by
        member. What a part of it refers to may be unreadable; it then is a question mark.
        """
        kind = self.type.kind
        if kind == "pointer":
            if self.type.name == "&":
                return self.target(0).plain(most)
            return pointer_text(int(self.number()))
        if kind == "enum":
            number = int(self.number())
            return self.type.names.get(number, number)
        if kind == "base":
            scalar = self.number()
            return bool(scalar) if self.type.encoding == _BOOLEAN else scalar
        if self.type.name in _HALVES:
            return self.number()
        if kind == "array":
            count = self.type.count or 0
            return [self.element(i)._plain_part(most) for i in range(min(count, most))]
        if kind == "struct":
            return {
                name or kind.name: self._part(kind, offset)._plain_part(most)
                for name, kind, offset in self.type.members
            }
        raise NoValue(f"a value of type {self.type.name} cannot be shown")

    def _plain_part(self, most: int) -> Any:
        try:
            return self.plain(most)
        except NoValue:
            return "?"


def pointer_text(address: int) -> str:
    """An address with its state space: ``shared+0x400``."""
    space = _WINDOWS.get(address >> 56)
    return f"{space}+{address & (1 << 56) - 1:#x}" if space else f"{address:#x}"


def _half(name: str, data: bytes) -> float:
    if name == "__half":
        return float(struct.unpack("e", data)[0])
    return float(struct.unpack("f", b"\0\0" + data)[0])


_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.Invert),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.FloorDiv, ast.BitAnd, ast.BitOr),
    *(ast.BitXor, ast.LShift, ast.RShift, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant, ast.IfExp),
)


def _quotient(left: Any, right: Any) -> Any:
    """C++ rounds the quotient of integers towards zero."""
    both_whole = isinstance(left, int) and isinstance(right, int)
    return int(left / right) if both_whole else left / right


_UNARY_OPERATORS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.FloorDiv: _quotient,
    ast.Mod: lambda a, b: int(math.fmod(a, b)),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


#: Words of Python that are names in C++, such as ``in``; a mark makes them names in Python, too.
_MARK = "__name"
_CPP_WORDS = {"and", "break", "class", "continue", "else", "for", "if", "not", "or", "return", "try", "while"}
_MARKED = re.compile(rf"\b({'|'.join(sorted({*keyword.kwlist} - _CPP_WORDS))})\b")


class Expression:
    """An expression of C++ without calls, casts and assignments: ``row == 5 && o[x + 1] > 0.f``.

    Raises :class:`NoValue` for anything else.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        python = _MARKED.sub(rf"\1{_MARK}", self.text)
        python = re.sub(r"(?<![\w.])(\d+\.?\d*|\.\d+)[fFuUlL]+\b", r"\1", python)
        python = python.replace("->", ".").replace("&&", " and ").replace("||", " or ")
        python = re.sub(r"!(?!=)", " not ", python)
        python = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", python))
        python = re.sub(r"(^|[(,=<>+\-/%&|\[]\s*)\*\s*([A-Za-z_][\w.]*)", r"\1\2[0]", python).strip()
        try:
            self._tree = ast.parse(python, mode="eval")
        except SyntaxError:
            raise NoValue(f"{self.text!r} is no expression that the debugger reads") from None
        for node in ast.walk(self._tree):
            if not isinstance(node, _ALLOWED):
                raise NoValue(f"{self.text!r}: the debugger reads names, members, elements and operators")
            if isinstance(node, ast.Name):
                node.id = node.id.removesuffix(_MARK)
            elif isinstance(node, ast.Attribute):
                node.attr = node.attr.removesuffix(_MARK)

    @property
    def names(self) -> list[str]:
        """The names of variables in it."""
        return [node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)]

    def value(self, names: Callable[[str], Any]) -> Any:
        """A number or a :class:`Value`; ``names`` gives the values of names or raises :class:`NoValue`."""
        try:
            return self._value(self._tree.body, names)
        except (ZeroDivisionError, TypeError, OverflowError, ValueError) as error:
            raise NoValue(f"{self.text!r} has no value: {error}") from None

    def _number(self, node: ast.expr, names: Callable[[str], Any]) -> Any:
        value = self._value(node, names)
        return value.number() if isinstance(value, Value) else value

    def _value(self, node: ast.expr, names: Callable[[str], Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            value = names(node.id)
            is_reference = (
                isinstance(value, Value) and value.type.name == "&" and value.type.kind == "pointer"
            )
            return value.target(0) if is_reference else value
        if isinstance(node, ast.Attribute):
            return _member(self._value(node.value, names), node.attr)
        if isinstance(node, ast.Subscript):
            value, index = self._value(node.value, names), self._number(node.slice, names)
            if not isinstance(value, Value):
                raise NoValue("a number has no elements")
            return value.element(int(index))
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            return any(bool(self._number(one, names)) == wanted for one in node.values) == wanted
        if isinstance(node, ast.UnaryOp):
            return _UNARY_OPERATORS[type(node.op)](self._number(node.operand, names))
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, names), self._number(node.right, names)
            return _OPERATORS[type(node.op)](left, right)
        if isinstance(node, ast.Compare):
            return self._holds(node, names)
        assert isinstance(node, ast.IfExp)
        return self._value(node.body if self._number(node.test, names) else node.orelse, names)

    def _holds(self, node: ast.Compare, names: Callable[[str], Any]) -> bool:
        """Whether all comparisons of a chain hold; it ends at the first that does not."""
        left = self._number(node.left, names)
        for comparison, other in zip(node.ops, node.comparators, strict=True):
            right = self._number(other, names)
            if not _COMPARISONS[type(comparison)](left, right):
                return False
            left = right
        return True


def _member(value: Any, name: str) -> Any:
    """A member of a struct, or of one of CUDA's triples such as threadIdx."""
    if isinstance(value, Mapping):
        if name not in value:
            raise NoValue(f"there is no {name}; there are {', '.join(value)}")
        return value[name]
    if not isinstance(value, Value):
        raise NoValue("a number has no members")
    return value.member(name)
