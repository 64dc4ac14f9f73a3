"""The verdict of an exercise's check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ladder.exercises.definition import Exercise

if TYPE_CHECKING:
    from ladder.emulator import Finding


@dataclass(frozen=True)
class Remark:
    """Something wrong. ``kind`` is ``lines``, ``build``, ``fault``, ``output``, ``sanitizer``, ``order`` or
    ``counts``; ``try_next`` holds commands that show more. ``access`` is the finding if the remark is about
    one access or barrier, and ``on`` names the problem or run it happened on.
    """

    kind: str
    text: str
    try_next: tuple[str, ...] = ()
    access: Finding | None = None
    on: str = ""


@dataclass
class Verdict:
    """The result of checking one exercise; ``right`` and ``wrong`` name the problems or runs it was tried on.

    If it passed, ``counts`` are those of ``counted_on``, the one with the largest counts. ``unused_files``
    are in the working copy and not the exercise's; ``protections`` say what the process that ran the
    student's code had given up, see :func:`ladder.common.sandbox.enter`.
    """

    exercise: Exercise
    findings: list[Remark] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counts: Mapping[str, int | None] = field(default_factory=dict)
    counted_on: str = ""
    unused_files: list[str] = field(default_factory=list)
    protections: tuple[str, ...] = ()

    def keep_largest(self, counts: Mapping[str, int | None], on: str) -> None:
        """Keeps these counts, of a run on ``on``, unless the current ones are larger."""
        if sum(value or 0 for value in counts.values()) > sum(value or 0 for value in self.counts.values()):
            self.counts, self.counted_on = counts, on

    @property
    def passed(self) -> bool:
        return not self.findings


def counter_words(column: str) -> str:
    """Names a column of the table in words."""
    name, _, kind = column.rpartition("_")
    kinds = {"ld": "of loads", "st": "of stores", "atom": "of atomics", "gmma": "of wgmma"}
    return f"{name} {kinds.get(kind, kind)}".replace("_", " ").strip()
