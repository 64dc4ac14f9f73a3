"""Integer expressions in ``lane`` from a command line, evaluated as C++ would, without eval().

So an address can be copied from a kernel: ``(lane % 16) * 256 + lane / 16 * 16``. Types, conversions and
precedence are those of C++20 with a 32-bit int and a 64-bit long ([expr] and [conv] in the standard), so that
``(lane - 1) % 8`` is -1 at lane 0, ``(lane - 1u) % 8`` is 7, and ``lane & 3 == 0`` means ``lane & (3 == 0)``.
Undefined behaviour in C++, such as signed overflow, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ladder.errors import LadderError

_LARGEST = 2**48
_LONGEST = 2000
_DEEPEST = 60

_TOKEN = re.compile(
    r"\s*(?:([0-9][\w.']*)|([A-Za-z_]\w*)|(\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),]))"
)
_NUMBER = re.compile(
    r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)([uU]?(?:ll|LL|[lL])?|(?:ll|LL|[lL])[uU])"
)
_WORDS = {"and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~"}
_FUNCTIONS = ("min", "max", "abs")
#: Operators by precedence, loosest first.
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class ExpressionError(LadderError, ValueError):
    """The expression does not give an integer for every lane."""


@dataclass(frozen=True)
class _Type:
    bits: int
    signed: bool

    def holds(self, value: int) -> bool:
        return (
            -(1 << self.bits - 1) <= value < 1 << self.bits - 1
            if self.signed
            else 0 <= value < 1 << self.bits
        )

    def converted(self, value: int) -> int:
        """Converts the value to this type: the representable value that is equal to it modulo 2**bits."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value >> self.bits - 1 else value

    def of_operation(self, value: int, text: str) -> int:
        """Converts the result of arithmetic: unsigned wraps around, signed overflow raises."""
        if self.signed and not self.holds(value):
            raise ExpressionError(f"{text} overflows {self}")
        return self.converted(value)

    def __str__(self) -> str:
        return ("" if self.signed else "unsigned ") + ("int" if self.bits == 32 else "long")


_INT = _Type(32, True)
_TYPES = (_INT, _Type(32, False), _Type(64, True), _Type(64, False))

_Values = Mapping[str, int]


@dataclass(frozen=True)
class _Node:
    """A subexpression: a function from the variables to its value, and its text."""

    type: _Type
    value: Callable[[_Values], int]
    text: str

    def as_type(self, type: _Type) -> _Node:
        return self if type == self.type else _Node(type, lambda v: type.converted(self.value(v)), self.text)


class Expression:
    """A parsed expression; call it with the values of its variables, all of type int.

    Allowed: C++ integer literals, the given names, ``+ - * / % & | ^ ~ << >>``, ``== != < <= > >=``, ``! &&
    ||``, ``? :``, ``min``, ``max``, ``abs``. Raises :class:`ExpressionError`.
    """

    def __init__(self, text: str, names: tuple[str, ...] = ("lane",)) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise ExpressionError(f"an expression of {len(text)} characters; at most {_LONGEST} are taken")
        try:
            self._tree = _Parser(text.strip(), names).parse()
        except RecursionError:
            raise ExpressionError(f"{text[:60]}... is nested too deeply") from None

    def __call__(self, **values: int) -> int:
        try:
            result = self._tree.value(values)
        except ZeroDivisionError:
            given = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise ExpressionError(f"{self.text} divides by 0 for {given}") from None
        except RecursionError:
            raise ExpressionError(f"{self.text[:60]}... is nested too deeply") from None
        if abs(result) > _LARGEST:
            raise ExpressionError(f"{self.text} is larger than any address")
        return result


class _Parser:
    """A recursive-descent parser with one call per level of precedence."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self._text = text
        self._names = names
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> _Node:
        tree = self._conditional()
        if self._peek():
            raise self._error()
        return tree

    def _peek(self) -> str:
        return self._tokens[self._next][1]

    def _take(self, *tokens: str) -> str:
        """Consumes the next token if it is one of ``tokens``; returns "" otherwise."""
        token = self._peek()
        if token not in tokens:
            return ""
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._error(f"{token} is missing")

    def _error(self, what: str = "this is no expression") -> ExpressionError:
        token, hint = self._peek(), ""
        if token == "if":
            hint = "In C: condition ? value : other"
        elif token == "/" and self._tokens[self._next - 1][1] == "/":
            hint = "In C // begins a comment; / divides whole numbers."
        return ExpressionError(f"{what}:\n{self._text}\n{' ' * self._tokens[self._next][0]}^", hint)

    def _written(self, first: int) -> str:
        """The source text from token number ``first`` up to the current one."""
        end = self._tokens[self._next - 1]
        return self._text[self._tokens[first][0] : end[0] + len(end[1])]

    def _conditional(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ExpressionError(f"{self._text[:60]}... is nested too deeply")
        first = self._next
        condition = self._binary(0)
        if self._take("?"):
            then = self._conditional()
            self._expect(":")
            otherwise = self._conditional()
            type = _common(then, otherwise)
            a, b = then.as_type(type), otherwise.as_type(type)
            node = _Node(
                type, lambda v: a.value(v) if condition.value(v) else b.value(v), self._written(first)
            )
        else:
            node = condition
        self._depth -= 1
        return node

    def _binary(self, level: int) -> _Node:
        if level == len(_LEVELS):
            return self._unary()
        first = self._next
        node = self._binary(level + 1)
        compared = False
        while operation := self._take(*_LEVELS[level]):
            if compared:
                self._next -= 1
                raise self._error("a comparison of a comparison; && joins two")
            compared = operation in ("<", "<=", ">", ">=")
            right = self._binary(level + 1)
            node = _combined(operation, node, right, self._written(first))
        return node

    def _unary(self) -> _Node:
        first = self._next
        operation = self._take("-", "+", "~", "!")
        if not operation:
            return self._primary()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ExpressionError(f"{self._text[:60]}... is nested too deeply")
        operand = self._unary()
        self._depth -= 1
        type, value, text = operand.type, operand.value, self._written(first)
        if operation == "!":
            return _Node(_INT, lambda v: int(not value(v)), text)
        if operation == "~":
            return _Node(type, lambda v: type.converted(~value(v)), text)
        if operation == "-":
            return _Node(type, lambda v: type.of_operation(-value(v), text), text)
        return _Node(type, value, text)

    def _primary(self) -> _Node:
        token = self._peek()
        if token == "(":
            self._next += 1
            node = self._conditional()
            self._expect(")")
            return node
        if token[:1].isdecimal():
            self._next += 1
            return _literal(token)
        if token in _FUNCTIONS:
            return self._call()
        if token in self._names:
            self._next += 1
            return _Node(_INT, lambda v: v[token], token)
        if re.match(r"[A-Za-z_]", token) and token != "if":
            known = ", ".join((*self._names, *_FUNCTIONS))
            raise ExpressionError(f"{token!r} has no meaning here", f"There is {known}.")
        raise self._error()

    def _call(self) -> _Node:
        first = self._next
        name = self._tokens[first][1]
        self._next += 1
        self._expect("(")
        arguments = [self._conditional()]
        while self._take(","):
            arguments.append(self._conditional())
        self._expect(")")
        text = self._written(first)
        if name == "abs":
            if len(arguments) != 1:
                raise ExpressionError(f"{text} needs one value")
            only = arguments[0]
            return _Node(only.type, lambda v: only.type.of_operation(abs(only.value(v)), text), text)
        if len(arguments) < 2:
            raise ExpressionError(f"{text} needs two values or more")
        type = _common(*arguments)
        converted = [argument.as_type(type) for argument in arguments]
        choose = min if name == "min" else max
        return _Node(type, lambda v: choose(argument.value(v) for argument in converted), text)


def _tokens(text: str) -> list[tuple[int, str]]:
    """Splits the text into (offset, token) pairs, ending with an empty token."""
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            raise ExpressionError(f"this is no expression:\n{text}\n{' ' * position}^")
        token = match[match.lastindex or 0]
        found.append((match.start(match.lastindex or 0), _WORDS.get(token, token)))
        position = match.end()
    return [*found, (len(text), "")]


def _literal(token: str) -> _Node:
    match = _NUMBER.fullmatch(token)
    if match is None:
        raise ExpressionError(f"{token} is no whole number")
    digits, suffix = match[1].lower(), match[2].lower()
    octal = digits.startswith("0") and digits.isdecimal()
    value = int(digits, 8) if octal else int(digits, 0)
    decimal = digits.isdecimal() and not octal
    for type in _TYPES:
        if ("u" in suffix and type.signed) or ("l" in suffix and type.bits == 32):
            continue
        if decimal and not type.signed and "u" not in suffix:
            continue
        if type.holds(value):
            return _Node(type, lambda v: value, token)
    raise ExpressionError(f"{token[:60]} fits no integer of 64 bits")


def _common(*nodes: _Node) -> _Type:
    """The usual arithmetic conversions: the wider type, or the unsigned one of two equally wide."""
    bits = max(node.type.bits for node in nodes)
    return _Type(bits, all(node.type.signed for node in nodes if node.type.bits == bits))


def _combined(operation: str, left: _Node, right: _Node, text: str) -> _Node:
    if operation == "&&":
        return _Node(_INT, lambda v: int(bool(left.value(v)) and bool(right.value(v))), text)
    if operation == "||":
        return _Node(_INT, lambda v: int(bool(left.value(v)) or bool(right.value(v))), text)
    if operation in ("<<", ">>"):
        return _Node(
            left.type, lambda v: _shift(operation, left.type, left.value(v), right.value(v), text), text
        )
    type = _common(left, right)
    a, b = left.as_type(type), right.as_type(type)
    if operation in _COMPARISONS:
        return _Node(_INT, lambda v: int(_compare(operation, a.value(v), b.value(v))), text)
    return _Node(
        type, lambda v: type.of_operation(_arithmetic(operation, a.value(v), b.value(v)), text), text
    )


def _compare(operation: str, a: int, b: int) -> bool:
    if operation in ("==", "!="):
        return (a == b) == (operation == "==")
    if operation in ("<=", ">="):
        return a <= b if operation == "<=" else a >= b
    return a < b if operation == "<" else a > b


def _arithmetic(operation: str, a: int, b: int) -> int:
    if operation == "+":
        return a + b
    if operation == "-":
        return a - b
    if operation == "*":
        return a * b
    if operation in ("/", "%"):
        quotient = abs(a) // abs(b)
        if (a < 0) != (b < 0):
            quotient = -quotient
        return quotient if operation == "/" else a - b * quotient
    return a & b if operation == "&" else a | b if operation == "|" else a ^ b


def _shift(operation: str, type: _Type, value: int, by: int, text: str) -> int:
    if not 0 <= by < type.bits:
        raise ExpressionError(f"{text} is a shift of {type} by {by} bits")
    return type.converted(value << by if operation == "<<" else value >> by)
