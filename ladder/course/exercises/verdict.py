"""The verdict of an exercise's check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ladder.common.wording import said
from ladder.course.exercises.definition import Exercise

if TYPE_CHECKING:
    from ladder.run.emulator import Finding


#: What may be wrong, in words.
KINDS = {
    "lines": "lines outside the markers are changed",
    "file": "another file than the exercise's",
    "gap": "not allowed between the markers",
    "build": "does not compile",
    "fault": "fault",
    "deadlock": "deadlock",
    "output": "wrong output",
    "sanitizer": "fault that the sanitizer found",
    "order": "another order than the task's",
    "counts": "right, but with other counts than the task's",
}


@dataclass(frozen=True)
class Remark:
    """Something wrong. ``kind`` is a key of :data:`KINDS`; ``try_next`` holds commands that show more.
    ``access`` is the finding if the remark is about one access or barrier. ``on`` names the problem or run
    that it happened on, "" if it happened before any.
    """

    kind: str
    text: str
    try_next: tuple[str, ...] = ()
    access: Finding | None = None
    on: str = ""

    def elsewhere(self, folder: str, other: str) -> Remark:
        """The remark with the name of another folder in place of ``folder``."""
        commands = tuple(command.replace(folder, other) for command in self.try_next)
        return replace(self, text=self.text.replace(folder, other), try_next=commands)


@dataclass
class Verdict:
    """The result of checking one exercise; ``right`` and ``wrong`` name the problems or runs it was tried on.

    If it passed, ``counts`` are those of ``counted_on``, the one with the largest counts. ``unused_files``
    are in the working copy and not the exercise's; ``protections`` say what the process that ran the
    student's code had given up, see :func:`ladder.common.sandbox.enter`. ``was_ended`` says that a process
    was ended at a limit of time or memory, or ended itself, so another run may differ. ``own_lines`` are the
    student's, such as ``kernel.cu:12-15``; "" if they are not known.
    """

    exercise: Exercise
    findings: list[Remark] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counts: Mapping[str, int | None] = field(default_factory=dict)
    counted_on: str = ""
    unused_files: list[str] = field(default_factory=list)
    protections: tuple[str, ...] = ()
    was_ended: bool = False
    own_lines: str = ""

    def keep_largest(self, counts: Mapping[str, int | None], on: str) -> None:
        """Keeps these counts, of a run on ``on``, unless the current ones are larger."""
        if sum(value or 0 for value in counts.values()) > sum(value or 0 for value in self.counts.values()):
            self.counts, self.counted_on = counts, on

    @property
    def passed(self) -> bool:
        return not self.findings

    @property
    def first_failing_case(self) -> str:
        """The problem or run that failed first, and how: ``N=80: wrong output``; "" if it passed."""
        if self.passed:
            return ""
        first = self.findings[0]
        kind = said(first.access.kind if first.access else KINDS[first.kind])
        return f"{first.on}: {kind}" if first.on else kind


def counter_words(column: str) -> str:
    """Names a column of the table in words."""
    return said(counter_in_english(column))


def counter_in_english(column: str) -> str:
    name, _, kind = column.rpartition("_")
    kinds = {"ld": "of loads", "st": "of stores", "atom": "of atomics", "gmma": "of wgmma"}
    return f"{name} {kinds.get(kind, kind)}".replace("_", " ").strip()
