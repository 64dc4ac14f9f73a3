"""The debugger in a lesson: what it says to commands, on a rung as it is or with lines taken out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ladder.common.terminal import SafeConsole
from ladder.course.lessons.changed import changed_copy
from ladder.course.lessons.listing import LessonError
from ladder.run.emulator import FORMS, retold
from ladder.stages import Stage, discover, read_stage

if TYPE_CHECKING:
    from ladder.operations import AnyProblem

_WIDTH = 88
#: The debugger's sentences, as in :data:`ladder.run.emulator.FORMS`. Its tables stay in English.
TRANSCRIPT = (
    "the sanitizer has found ({kind}): {message}",
    "breakpoint {number} at {place} if {condition}",
    "breakpoint {number}",
    "watch {number}: {text} was changed by block {block} warp {warp} at {place}",
    "watch {number}: {text}, {count} bytes in shared memory",
    "{place} in {function}, block {block} warp {warp} lane {lane} = thread {thread}",
    "instruction {number} of launch {launch}",
    "{name}: {rows} x {columns} of {type}",
)


def debug(
    stage: str, problem: AnyProblem, commands: Sequence[str], *, check: bool = False, without: str = ""
) -> None:
    """Prints what the debugger says to ``commands`` on a rung. With ``check`` it also stops at findings of
    the sanitizer. ``without`` takes the lines that are this text out of the kernel first.

    Raises :class:`LadderError`.
    """
    from ladder.debugger import How, Prompt, debug_stage

    rung = discover()[stage]
    if without:
        rung = _without(rung, without)
    with (
        open(os.devnull, "wb") as nothing,
        open(os.devnull, "w", encoding="utf-8") as unseen,
        debug_stage(rung, problem, How(check=check), output=nothing) as session,
    ):
        console = SafeConsole(record=True, width=_WIDTH, quiet=False, file=unseen, force_jupyter=False)
        Prompt(session, console).run(commands, echoes=True)
        print(translated_transcript(console.export_text().rstrip()))


def translated_transcript(transcript: str, translate: Callable[[str], str] | None = None) -> str:
    """What :func:`debug` prints, in the reader's language or by ``translate``. Commands and code stay."""

    def line_of(text: str) -> str:
        bare = text.lstrip()
        return text[: len(text) - len(bare)] + retold(bare, (*TRANSCRIPT, *FORMS), translate)

    return "\n".join(map(line_of, transcript.split("\n")))


def _without(stage: Stage, text: str) -> Stage:
    """A copy of the rung in whose kernel the lines that are this text are empty."""
    lines = stage.kernel.read_text(encoding="utf-8").splitlines()
    kept = ["" if line.strip() == text else line for line in lines]
    if kept == lines:
        raise LessonError(f"{stage.name} has no line that is {text!r}")
    return read_stage(changed_copy(stage, "\n".join([*kept, ""]), "changed"))
