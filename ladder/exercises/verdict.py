"""What the check of an exercise comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ladder.exercises.definition import Exercise

if TYPE_CHECKING:
    from ladder.emulator import Finding


@dataclass(frozen=True)
class Remark:
    """Something that is wrong. ``kind`` is ``lines``, ``build``, ``fault``, ``output``, ``sanitizer`` or
    ``counts``; ``try_next`` are commands that show more. ``access`` is what the text is about where that is
    one access or barrier, and ``on`` what it happened on, in words."""

    kind: str
    text: str
    try_next: tuple[str, ...] = ()
    access: Finding | None = None
    on: str = ""


@dataclass
class Verdict:
    """What the check of one exercise found; ``right`` and ``wrong`` are what it was tried on, in words.

    Of one that passed, ``counts`` are those of ``counted_on``, the one of these with the largest counts.
    """

    exercise: Exercise
    findings: list[Remark] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counts: Mapping[str, int | None] = field(default_factory=dict)
    counted_on: str = ""

    def keep_largest(self, counts: Mapping[str, int | None], on: str) -> None:
        """Takes these counts, of a run on ``on``, unless those that it has are larger."""
        if sum(value or 0 for value in counts.values()) > sum(value or 0 for value in self.counts.values()):
            self.counts, self.counted_on = counts, on

    @property
    def passed(self) -> bool:
        return not self.findings
