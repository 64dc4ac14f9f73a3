"""One shared-memory access by a line of a stage, as emulated: addresses, banks, passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.counts.banks.access import Access, Service, serve
from ladder.counts.banks.instruction import SourceInstruction, source_fields
from ladder.counts.banks.placed_lines import PlacedLine, placed_instructions, placed_line
from ladder.errors import LadderError
from ladder.operations import AnyProblem
from ladder.run.emulator import WorstAccess

if TYPE_CHECKING:
    from ladder.run.emulator import Launch


@dataclass(frozen=True)
class Instruction(SourceInstruction):
    """A PTX instruction that accesses shared memory, with its counts over the launch and its worst access."""

    wavefronts: int
    conflicts: int
    worst: WorstAccess


@dataclass(frozen=True)
class Explanation:
    """The worst access, the one with the most conflicts, of one of a line's instructions.

    ``instructions`` holds all of the line's instructions, most conflicts first; ``service`` is of ``chosen``.
    ``total_conflicts`` is the sum over the whole launch.
    """

    stage: str
    path: Path
    line: int
    text: str
    instructions: tuple[Instruction, ...]
    chosen: Instruction
    service: Service
    total_conflicts: int

    @property
    def wavefronts(self) -> int:
        """The wavefronts of all the line's instructions, over the launch."""
        return sum(one.wavefronts for one in self.instructions)

    @property
    def conflicts(self) -> int:
        """The conflicts of all the line's instructions, over the launch."""
        return sum(one.conflicts for one in self.instructions)

    @property
    def title(self) -> str:
        return f"{self.stage}, {self.path.name}:{self.line}: {self.service.access}"


def explain(
    place: str,
    problem: AnyProblem | None = None,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    instruction: int | None = None,
) -> Explanation:
    """Runs a stage on the emulator and explains one shared-memory access of the line ``place``.

    ``place`` is ``STAGE:LINE`` for its kernel.cu or ``STAGE:FILE:LINE`` for another of its source files. A
    kernel line that calls a helper stands for the accesses in the helper. ``instruction`` is an index into
    :attr:`Explanation.instructions`; the default is the one with the most conflicts.

    Raises :class:`LadderError`, for a line of products of a warpgroup or of boxes of TMA, too:
    :func:`explain_line` is for any.
    """
    found = explain_line(place, problem, arch=arch, options=options, instruction=instruction)
    if isinstance(found, PlacedLine):
        raise LadderError(
            f"line {found.line} of {found.path.name} has no lanes with addresses to show: {found.cost}",
            f"ladder explain {place} draws where its tiles lie.",
        )
    return found


def explain_line(
    place: str,
    problem: AnyProblem | None = None,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    instruction: int | None = None,
) -> Explanation | PlacedLine:
    """Does what :func:`explain` does; of a line of products of a warpgroup or of boxes of TMA, it tells where
    their operands and boxes lie in shared memory. A line with both kinds is explained as the former, unless
    ``instruction`` says otherwise.

    Raises :class:`LadderError`.
    """
    from ladder.run.evaluation import default_problem, evaluate

    stage, file_name, line = parse_place(place)
    problem = problem or default_problem(stage)
    launches = tuple(
        evaluate(stage, problem, backend="emulator", arch=arch, options=options).execution.launches
    )
    placed = placed_line(launches, stage, file_name, line, instruction)
    if placed is not None and (
        placed.chosen.number == instruction or not _has_access(launches, file_name, line)
    ):
        return placed
    return explain_launches(launches, stage, file_name, line, instruction)


def _has_access(launches: Iterable[Launch], file_name: str, line: int) -> bool:
    return any((file_name, line) in found.places for launch in launches for found in _instructions(launch))


def explain_launches(
    launches: Iterable[Launch], stage: str, file_name: str, line: int, instruction: int | None = None
) -> Explanation:
    """Does what :func:`explain` does, for the finished launches of ``stage``.

    Raises :class:`LadderError`.
    """
    launches = tuple(launches)
    everything = [found for launch in launches for found in _instructions(launch)]
    at_line = [found for found in everything if (file_name, line) in found.places]
    if not at_line:
        asynchronous = [place for one in placed_instructions(launches) for place in one.places]
        raise LadderError(
            f"line {line} of {file_name} makes no access to shared memory",
            _lines_with_accesses(
                [*(place for one in everything for place in one.places), *asynchronous], file_name
            ),
        )
    at_line.sort(key=lambda found: (-found.conflicts, -found.wavefronts, found.number))
    chosen = at_line[0]
    if instruction is not None:
        matching = [found for found in at_line if found.number == instruction]
        if not matching:
            numbers = ", ".join(str(number) for number in sorted(found.number for found in at_line))
            raise LadderError(
                f"{stage}:{file_name}:{line} has no instruction {instruction}", f"It has {numbers}."
            )
        chosen = matching[0]
    path, text = chosen.source_line(file_name, line)
    return Explanation(
        stage=stage,
        path=path,
        line=line,
        text=text,
        instructions=tuple(at_line),
        chosen=chosen,
        service=serve(Access(_op(chosen.worst.op), chosen.worst.width, chosen.worst.addresses)),
        total_conflicts=sum(found.conflicts for found in everything),
    )


def parse_place(place: str) -> tuple[str, str, int]:
    """Splits ``STAGE:LINE`` or ``STAGE:FILE:LINE`` into stage, file and line. Raises :class:`LadderError`."""
    words = place.split(":")
    is_number = re.fullmatch(r"0*[1-9]\d{0,8}", words[-1], re.ASCII)
    if len(words) not in (2, 3) or not is_number or not all(words):
        raise LadderError(f"{place!r} is not STAGE:LINE", "For example v2:120, or v2:ptx.h:20.")
    return words[0], words[1] if len(words) == 3 else "kernel.cu", int(words[-1])


def _op(name: str) -> str:
    """Maps the emulator's name of an access, a PTX opcode for matrix accesses, to the explorer's."""
    return {"matrix": "ldmatrix", "wmma": "ldmatrix"}.get(name, name)


def _instructions(launch: Launch) -> list[Instruction]:
    rows = launch.instructions().set_index("index")
    found = []
    for worst in launch.worst_accesses():
        row = rows.loc[worst.instruction]
        found.append(
            Instruction(
                **source_fields(worst.instruction, row),
                wavefronts=_known(row["wavefronts_ld"]) + _known(row["wavefronts_st"]),
                conflicts=_known(row["conflicts"]),
                worst=worst,
            )
        )
    return found


def _known(value: object) -> int:
    """The number, or 0 if the model does not cover all of the instruction's accesses."""
    import pandas as pd

    return 0 if pd.isna(value) else int(str(value))  # type: ignore[call-overload]


def _lines_with_accesses(places: list[tuple[str, int]], file_name: str) -> str:
    lines = sorted({line for name, line in places if name == file_name})
    if not lines:
        files = sorted({name for name, _ in places})
        return f"There are accesses in {', '.join(files)}." if files else "The stage makes none at all."
    return f"Those of {file_name} that do: {', '.join(map(str, lines))}."
