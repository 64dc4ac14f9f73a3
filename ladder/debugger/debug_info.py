"""The variables of a kernel by name: the DWARF sections in PTX that ``nvcc -G`` wrote.

It is DWARF 2 with three changes: a register's number is its PTX name in ASCII, addresses are labels, local
variables without a register are at an offset from the symbol ``__local_depot``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# The numbers of DWARF that are used here (DWARF 4, section 7.5).
_ARRAY, _ENUM, _PARAMETER, _BLOCK, _MEMBER, _POINTER, _REFERENCE = 0x01, 0x04, 0x05, 0x0B, 0x0D, 0x0F, 0x10
_STRUCT, _TYPEDEF, _UNION, _INHERITANCE, _SUBRANGE, _BASE, _CONST = 0x13, 0x16, 0x17, 0x1C, 0x21, 0x24, 0x26
_ENUMERATOR, _FUNCTION, _VARIABLE, _VOLATILE, _CLASS, _RVALUE = 0x28, 0x2E, 0x34, 0x35, 0x02, 0x42
_LOCATION, _NAME, _BYTES, _LOW, _HIGH = 0x02, 0x03, 0x0B, 0x11, 0x12
_VALUE, _UPPER, _COUNT, _MEMBER_OFFSET, _ENCODING = 0x1C, 0x2F, 0x37, 0x38, 0x3E
_SPECIFICATION, _TYPE, _LINKAGE_NAME, _ORIGIN = 0x47, 0x49, 0x2007, 0x31
_OP_ADDRESS, _OP_PLUS, _OP_REGISTER = 0x03, 0x23, 0x90
_FLOAT = 0x04
_FLOATS = {4: "<f", 8: "<d"}
_WRAPPERS = (_TYPEDEF, _CONST, _VOLATILE)
_DIRECTIVE = re.compile(r"\.b(8|16|32|64)\s+(.*)")
_LABEL = re.compile(r"\s*(\$L__\w+):")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOCATION_OF_CODE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_INSTRUCTION = re.compile(r"\s*(@!?%\w+\s+)?[a-z]")


@dataclass(frozen=True)
class Type:
    """A type of C++. ``kind`` is base, pointer, struct, array, enum or void; ``encoding`` is DWARF's number
    of a base type; ``members`` are (name, type, offset); ``count`` is an array's length, None if unknown.
    """

    kind: str
    name: str
    bytes: int
    encoding: int = 0
    target: Type | None = None
    members: tuple[tuple[str, Type, int], ...] = ()
    count: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a variable is: in the register ``register``, ``offset`` bytes into ``symbol``, or nowhere, since
    it is the ``constant``.
    """

    register: str = ""
    symbol: str = ""
    offset: int = 0
    constant: float | None = None


@dataclass(frozen=True)
class Variable:
    """A variable, its scope and its places, each from one line of the PTX to another, both exclusive."""

    name: str
    type: Type
    scope: tuple[int, int]
    places: tuple[tuple[int, int, Place], ...]

    def place_at(self, ptx_line: int) -> Place | None:
        """Where it is before the instruction on this line; None: the compiler keeps it nowhere."""
        return next((place for begin, end, place in self.places if begin < ptx_line < end), None)

    @property
    def is_somewhere(self) -> bool:
        """Whether it has a value on some line."""
        return any(place != Place() for _, _, place in self.places)


@dataclass(frozen=True)
class _Entry:
    offset: int
    tag: int
    values: Mapping[int, Any]
    children: list[_Entry]


class DebugInfo:
    """What the PTX text says about variables; nothing if it was compiled without ``-G``."""

    def __init__(self, ptx: str) -> None:
        self._ptx = ptx
        self._labels = {
            match[1]: number
            for number, line in enumerate(ptx.split("\n"), 1)
            if "$L__" in line and (match := _LABEL.match(line))
        }
        self._sections = {name: _Section(ptx, name) for name in ("debug_info", "debug_abbrev", "debug_loc")}
        self.has_variables = bool(self._sections["debug_info"].bytes)
        self._types: dict[int, Type] = {}

    def variables(self, function: str, ptx_line: int) -> list[Variable]:
        """The variables in scope before this instruction, the innermost scope first. ``function`` is the
        function's name in the PTX.
        """
        all_of_it = self._variables.get(function, [])
        seen: dict[str, Variable] = {}
        for one in reversed(all_of_it):  # inner scopes come after outer ones
            if one.scope[0] < ptx_line < one.scope[1]:
                seen.setdefault(one.name, one)
        return list(seen.values())

    def function_name(self, function: str) -> str:
        """A function's name in the source, with the arguments of its template."""
        return self._functions.get(function, (function, None))[0]

    @cached_property
    def code(self) -> list[tuple[int, str, int]]:
        """The lines with code, of all kernels of the module: the line in the PTX, the file, its line."""
        files = {int(match[1]): match[2] for match in _FILE.finditer(self._ptx)}
        found: list[tuple[int, str, int]] = []
        location = None
        for number, text in enumerate(self._ptx.split("\n"), 1):
            if match := _LOCATION_OF_CODE.match(text):
                location = (files.get(int(match[1]), ""), int(match[2]))
            elif location and _INSTRUCTION.match(text):
                if location[1]:
                    found.append((number, *location))
                location = None
        return found

    def functions(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The functions of the module: the name in the source, and its range in the PTX."""
        return ((name, self._range(entry)) for name, entry in self._functions.values())

    @cached_property
    def globals(self) -> list[Variable]:
        """The variables outside functions."""
        return [*self._of_scope(self._root, (0, 1 << 60))] if self.has_variables else []

    @cached_property
    def _functions(self) -> dict[str, tuple[str, _Entry]]:
        found = {}
        for entry in self._entries.values() if self.has_variables else ():
            if entry.tag == _FUNCTION and _LOW in entry.values:
                declared = self._entries.get(entry.values.get(_SPECIFICATION, -1), entry)
                name = entry.values.get(_NAME) or declared.values.get(_NAME, "")
                linkage = entry.values.get(_LINKAGE_NAME) or declared.values.get(_LINKAGE_NAME) or name
                found[linkage] = (name, entry)
        return found

    @cached_property
    def _variables(self) -> dict[str, list[Variable]]:
        return {
            linkage: [*self._of_scope(entry, self._range(entry))]
            for linkage, (_, entry) in self._functions.items()
        }

    def _of_scope(self, entry: _Entry, scope: tuple[int, int]) -> Iterator[Variable]:
        for child in entry.children:
            if child.tag in (_VARIABLE, _PARAMETER):
                origin = self._entries.get(child.values.get(_ORIGIN, -1), child)
                name = child.values.get(_NAME) or origin.values.get(_NAME)
                if name and _TYPE in origin.values:
                    kind = self._type(origin.values[_TYPE])
                    yield Variable(_plain_name(name), kind, scope, self._places(child, kind))
            elif child.tag == _BLOCK:
                yield from self._of_scope(child, self._range(child))

    def _range(self, entry: _Entry) -> tuple[int, int]:
        low, high = (self._labels.get(str(entry.values.get(name)), 0) for name in (_LOW, _HIGH))
        return low, high

    def _places(self, entry: _Entry, kind: Type) -> tuple[tuple[int, int, Place], ...]:
        if _VALUE in entry.values:
            return ((0, 1 << 60, Place(constant=_constant(entry.values[_VALUE], kind))),)
        location = entry.values.get(_LOCATION)
        if isinstance(location, tuple):
            return ((0, 1 << 60, _place(*location)),)
        if location is None:
            return ()
        places = []
        section = self._sections["debug_loc"]
        at = int(str(location).partition("+")[2] or 0)
        while begin := section.labels.get(at):
            length = int.from_bytes(section.bytes[at + 16 : at + 18], "little")
            place = _place(section.bytes[at + 18 : at + 18 + length], section.labels_within(at + 18, length))
            places.append((self._labels[begin], self._labels[section.labels[at + 8]], place))
            at += 18 + length
        return tuple(places)

    # --- types

    def _type(self, offset: int | None) -> Type:
        if offset is None or offset not in self._entries:
            return Type("void", "void", 0)
        if offset not in self._types:
            self._types[offset] = Type("void", "...", 0)  # while a type that contains itself is being read
            self._types[offset] = self._read_type(self._entries[offset])
        return self._types[offset]

    def _read_type(self, entry: _Entry) -> Type:
        values, tag = entry.values, entry.tag
        name, size = values.get(_NAME, ""), values.get(_BYTES, 0)
        if tag in _WRAPPERS:
            return self._type(values.get(_TYPE))
        if tag in (_POINTER, _REFERENCE, _RVALUE):
            # What it points to is read when it is followed, since types may contain pointers to themselves.
            target = _Lazy(lambda: self._type(values.get(_TYPE)))
            return Type("pointer", "&" if tag != _POINTER else "*", 8, target=target)  # type: ignore[arg-type]
        if tag == _ARRAY:
            element = self._type(values.get(_TYPE))
            for child in reversed([one for one in entry.children if one.tag == _SUBRANGE]):
                count = child.values.get(_COUNT)
                if count is None and _UPPER in child.values:
                    count = child.values[_UPPER] + 1
                count = count or None
                text = f"{element.name}[{'' if count is None else count}]"
                element = Type("array", text, (count or 0) * element.bytes, target=element, count=count)
            return element
        if tag in (_STRUCT, _UNION, _CLASS):
            members = [
                (child.values.get(_NAME, ""), self._type(child.values.get(_TYPE)), _member_offset(child))
                for child in entry.children
                if child.tag in (_MEMBER, _INHERITANCE) and _TYPE in child.values
                and (_MEMBER_OFFSET in child.values or tag == _UNION)
            ]  # fmt: skip
            return Type("struct", name, size, members=tuple(members))
        if tag == _ENUM:
            names = {
                one.values[_VALUE]: one.values[_NAME] for one in entry.children if one.tag == _ENUMERATOR
            }
            return Type("enum", name, size, names=names)
        if tag == _BASE:
            return Type("base", name, size, encoding=values.get(_ENCODING, 0))
        return Type("void", name or "void", 0)

    # --- entries

    @cached_property
    def _root(self) -> _Entry:
        assert self._entries
        return next(iter(self._entries.values()))

    @cached_property
    def _entries(self) -> dict[int, _Entry]:
        """All entries by offset."""
        section = self._sections["debug_info"]
        formats = _abbreviations(self._sections["debug_abbrev"].bytes)
        entries: dict[int, _Entry] = {}
        open_entries: list[_Entry] = []
        at, end = 11, len(section.bytes)
        while at < end:
            begin = at
            code, at = _unsigned(section.bytes, at)
            if code == 0:
                if open_entries:
                    open_entries.pop()
                continue
            tag, has_children, attributes = formats[code]
            values = {}
            for attribute, form in attributes:
                values[attribute], at = section.value(form, at)
            entry = _Entry(begin, tag, values, [])
            entries[begin] = entry
            if open_entries:
                open_entries[-1].children.append(entry)
            if has_children:
                open_entries.append(entry)
        return entries


def _plain_name(name: str) -> str:
    """The last part of a mangled name, such as of a shared variable in an anonymous namespace."""
    at, last = 3, ""
    while name.startswith("_ZN") and (match := re.match(r"\d+", name[at:])):
        begin = at + match.end()
        at = begin + int(match[0])
        last = name[begin:at]
    return last or name


class _Lazy:
    """A type that is read when it is first used."""

    def __init__(self, read: Callable[[], Type]) -> None:
        self._read = read

    @cached_property
    def _type(self) -> Type:
        return self._read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._type, name)


class _Section:
    """A section's bytes, with zeros for labels; ``labels`` has these by offset."""

    def __init__(self, ptx: str, name: str) -> None:
        self.labels: dict[int, str] = {}
        content = bytearray()
        begin = re.search(rf"^\s*\.section\s+\.{name}\s*\{{", ptx, re.MULTILINE)
        text = ptx[begin.end() : ptx.index("}", begin.end())] if begin else ""
        for line in text.split("\n"):
            if not (match := _DIRECTIVE.match(line.strip())):
                continue
            size = int(match[1]) // 8
            for word in match[2].split(","):
                try:
                    number = int(word)
                except ValueError:
                    self.labels[len(content)] = word.strip()
                    number = 0
                content += (number & (1 << 8 * size) - 1).to_bytes(size, "little")
        self.bytes = bytes(content)

    def labels_within(self, begin: int, length: int) -> dict[int, str]:
        """The labels of a part, by offset in it."""
        return {at - begin: label for at in range(begin, begin + length) if (label := self.labels.get(at))}

    def value(self, form: int, at: int) -> tuple[Any, int]:
        """An attribute's value, and where the next begins."""
        if form == 0x08:  # a string
            end = self.bytes.index(0, at)
            return self.bytes[at:end].decode(errors="replace"), end + 1
        if size := {0x0B: 1, 0x0C: 1, 0x11: 1, 0x05: 2, 0x12: 2, 0x06: 4, 0x13: 4, 0x01: 8, 0x07: 8}.get(
            form
        ):
            number = int.from_bytes(self.bytes[at : at + size], "little")
            return self.labels.get(at, number), at + size
        if form == 0x0F:
            return _unsigned(self.bytes, at)
        if form == 0x0D:
            number, end = _unsigned(self.bytes, at)
            bits = 7 * (end - at)
            return (number - (1 << bits) if number >> (bits - 1) else number), end
        if form == 0x0A:
            length = self.bytes[at]
            begin = at + 1
        elif form == 0x09:
            length, begin = _unsigned(self.bytes, at)
        else:
            raise ValueError(f"the debug information has a value of the unknown form {form:#x}")
        return (self.bytes[begin : begin + length], self.labels_within(begin, length)), begin + length


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and where the next begins."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _abbreviations(data: bytes) -> dict[int, tuple[int, bool, list[tuple[int, int]]]]:
    """By code: tag, whether there are children, attributes with their forms."""
    all_of_them = {}
    at = 0
    while at < len(data) and data[at]:
        code, at = _unsigned(data, at)
        tag, at = _unsigned(data, at)
        has_children = bool(data[at])
        at += 1
        attributes = []
        while True:
            attribute, at = _unsigned(data, at)
            form, at = _unsigned(data, at)
            if not attribute and not form:
                break
            attributes.append((attribute, form))
        all_of_them[code] = (tag, has_children, attributes)
    return all_of_them


def _place(expression: bytes, labels: Mapping[int, str]) -> Place:
    """The place that a location expression describes."""
    if expression[0] == _OP_REGISTER:
        number, _ = _unsigned(expression, 1)
        return Place(register=number.to_bytes((number.bit_length() + 7) // 8, "big").decode(errors="replace"))
    if expression[0] == _OP_ADDRESS:
        offset = _unsigned(expression, 10)[0] if len(expression) > 10 and expression[9] == _OP_PLUS else 0
        return Place(symbol=labels.get(1, ""), offset=offset)
    return Place()


def _member_offset(entry: _Entry) -> int:
    location = entry.values.get(_MEMBER_OFFSET, 0)
    if isinstance(location, int):
        return location
    return _unsigned(location[0], 1)[0] if location[0] and location[0][0] == _OP_PLUS else 0


def _constant(value: Any, kind: Type) -> float:
    """The value of a constant. DWARF stores a float constant as a block of bytes."""
    if isinstance(value, int):
        return value
    data: bytes = value[0]
    if kind.encoding == _FLOAT and len(data) in _FLOATS:
        return float(struct.unpack(_FLOATS[len(data)], data)[0])
    return int.from_bytes(data, "little")
