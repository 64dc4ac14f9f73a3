"""What a live page needs beside PTX with debug information: places and variables of each instruction.

The tables come from the PTX alone. Its launches end before their first instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ladder import _emulator
from ladder.debugger import DebugInfo, Type, Variable, first_instructions
from ladder.errors import LadderError
from ladder.run import emulator

_DEPOT = "__local_depot"
#: A multiple of the usual sizes of clusters.
_GRID = (8, 8, 8)
#: DWARF's encodings of base types.
_ENCODINGS = {0x02: "b", 0x04: "f", 0x05: "i", 0x06: "i", 0x07: "u", 0x08: "u"}


class _Seen(Exception):
    """The launch has begun, and need not go on."""


def debugging_tables(ptx: str, arch: str) -> dict[str, dict[str, Any]]:
    """By kernel of the PTX: where each instruction is in the source, and where its variables are then, as
    JSON.

    ``places`` has [file, line, function, scope] by instruction; ``scopes`` has lists of variables [name,
    type, kind of place, symbol, offset]; ``starts`` has the instructions of a breakpoint on a line of the
    kernel's own file.

    Raises :class:`LadderError`.
    """
    info = DebugInfo(ptx)
    return {kernel: _tables(info, rows) for kernel, rows in _instructions(ptx, arch).items()}


def _instructions(ptx: str, arch: str) -> dict[str, Sequence[Any]]:
    """The stepper's instructions of each kernel."""
    found: dict[str, Sequence[Any]] = {}

    def stopped(_: str) -> None:
        found[stepper.launch()["mangled"]] = stepper.instructions()
        raise _Seen

    stepper = _emulator.Stepper(stopped)
    with emulator.session(arch, threads=1):
        try:
            module = _emulator.Module(ptx, arch)
        except _emulator.PtxError as error:
            raise emulator.PtxError(*error.args) from None
        stepper.attach()
        try:
            for kernel in module.kernels():
                _begin(module, kernel)
        finally:
            stepper.detach()
    return found


def _begin(module: _emulator.Module, kernel: str) -> None:
    """Begins a launch, with zeros for arguments, that ends where the stepper stops it."""
    try:
        with suppress(_Seen):
            module.launch(kernel, _GRID, (1, 1, 1), bytes(module.parameter_bytes(kernel)), 0)
    except _emulator.FaultError as error:
        raise LadderError(f"this kernel has no steps: {error.args[0]['message']}") from None


def _tables(info: DebugInfo, rows: Sequence[Any]) -> dict[str, Any]:
    files: list[str] = []
    scopes: list[list[Any]] = []
    places = []
    for function, ptx_line, _, positions in rows:
        file, line = positions[0][:2] if positions else ("", 0)
        if file not in files:
            files.append(file)
        scope = [
            *filter(None, (_place(one, ptx_line) for one in reversed(info.variables(function, ptx_line))))
        ]
        if scope not in scopes:
            scopes.append(scope)
        places.append([files.index(file), line, info.function_name(function), scopes.index(scope)])
    own = rows[0][3][-1][0]
    return {
        "files": [Path(file).name for file in files],
        "places": places,
        "scopes": scopes,
        "starts": first_instructions(rows).get(own, {}),
    }


def _place(variable: Variable, ptx_line: int) -> list[Any] | None:
    """A variable that the page can show; None for others."""
    kind = _kind(variable.type)
    place = variable.place_at(ptx_line)
    if kind is None or place is None or not variable.name.isidentifier():
        return None
    if place.constant is not None:
        return [variable.name, kind, "constant", "", place.constant]
    if place.register:
        return [variable.name, kind, "register", place.register, 0]
    if place.symbol:
        space = "local" if place.symbol.startswith(_DEPOT) else "parameter"
        return [variable.name, kind, space, place.symbol, place.offset]
    return None


def _kind(kind: Type) -> str | None:
    """A scalar's type in short, such as f4, i8 or p8; None for other types."""
    if kind.kind == "pointer":
        return "p8"
    if kind.kind == "base" and kind.encoding in _ENCODINGS:
        return f"{_ENCODINGS[kind.encoding]}{kind.bytes}"
    return None
