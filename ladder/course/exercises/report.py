"""Renders verdicts line by line, for terminals and notebook cells."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.console import RenderableType
from rich.constrain import Constrain
from rich.text import Text

from ladder.common.wording import said
from ladder.course.exercises.answers import read_answers
from ladder.course.exercises.markers import solution_text
from ladder.course.exercises.reference_counts import reference_counts
from ladder.course.exercises.verdict import Verdict, counter_words
from ladder.course.exercises.wording import worded
from ladder.show.render import finding_table

_SHOWN_FILES = 5
#: The longest line of running text.
PROSE_WIDTH = 100


def verdict_lines(verdict: Verdict) -> Iterator[RenderableType]:
    """Yields whether it is solved, the problems tried, and what is wrong, with commands that show more."""
    name = verdict.exercise.name
    if verdict.passed:
        yield Text.assemble((said("solved"), "bold green"), f" {name}")
    else:
        yield Text.assemble((said("not yet"), "bold red"), f" {name}")
    if verdict.unused_files:
        names = ", ".join(verdict.unused_files[:_SHOWN_FILES])
        more = ", ..." if len(verdict.unused_files) > _SHOWN_FILES else ""
        yield Text("  " + said("not the exercise's, and not used: {names}", names=names + more), "yellow")
    if verdict.passed:
        return
    for text in verdict.right:
        yield Text("  " + said("right  {on}", on=text), "green")
    for text in verdict.wrong:
        yield Text("  " + said("wrong  {on}", on=text), "red")
    # The access before the numbers that it made wrong.
    for finding in sorted(verdict.findings, key=lambda one: one.kind == "output"):
        yield ""
        if finding.access is None:
            yield Text(finding.text)
        else:
            yield Text(said("On {on}:", on=finding.on))
            yield finding_table(finding.access)
        for command in finding.try_next:
            yield Text(f"  {command}", "cyan")


def afterword_lines(verdict: Verdict, text: str) -> Iterator[RenderableType]:
    """Yields what to read after solving the exercise with ``text`` in the gap.

    These are the reference's lines after the student's, other right answers, the explanation, and the counts.
    """
    exercise = verdict.exercise
    reference = solution_text(exercise)
    if _code(text) != _code(reference):
        yield Text("\n" + said("Your lines (-) and the reference's (+):"), "bold")
        yield from _difference(text, reference)
    for answer in read_answers(exercise).right:
        if _code(answer.text) not in (_code(text), _code(reference)):
            yield Text("\n" + said("Also right, {why}:", why=said(answer.why)), "bold")
            yield Text("\n".join(f"  {line}" for line in answer.text.strip("\n").splitlines()))
    # Wrapped even if the console wraps no lines: a terminal would break its words.
    words = Text(f"\n{worded(exercise).afterword}", no_wrap=False, overflow="fold")
    yield Constrain(words, PROSE_WIDTH)
    yield from _counts_lines(verdict)


#: The student's count and the reference's differ if one is this many times the other.
_DIFFERS = 1.5


def _counts_lines(verdict: Verdict) -> Iterator[RenderableType]:
    """The student's counts, beside the reference's where these are known; how far they are apart."""
    known = reference_counts(verdict.exercise)
    theirs = known.counts if known is not None and known.on == verdict.counted_on else None
    names = [name for name, count in verdict.counts.items() if count or (theirs or {}).get(name)]
    if not names:
        return
    what = said("What the hardware would count, on {on}:", on=verdict.counted_on)
    yield Text(f"\n{what}", "bold")
    rows = [[_number(verdict.counts[name]), counter_words(name)] for name in names]
    if theirs is not None:
        rows = [[said("yours"), said("reference"), ""]] + [
            [own, _number(theirs.get(name, 0)), words] for name, (own, words) in zip(names, rows, strict=True)
        ]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for *numbers, words in rows:
        cells = [" " * (width - cell_len(text)) + text for width, text in zip(widths, numbers, strict=True)]
        yield Text("  " + "  ".join([*cells, words]).rstrip())
    if theirs is not None and (apart := _furthest_apart(verdict.counts, theirs)):
        yield Text(apart, no_wrap=False, overflow="fold")


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _furthest_apart(own: Mapping[str, int | None], theirs: Mapping[str, int]) -> str:
    """The count that differs most; "" if all are less than :data:`_DIFFERS` times the other."""
    ratios = {
        name: (count + 1) / (theirs.get(name, 0) + 1) for name, count in own.items() if count is not None
    }
    name = max(ratios, key=lambda one: max(ratios[one], 1 / ratios[one]), default="")
    if not name or max(ratios[name], 1 / ratios[name]) < _DIFFERS:
        return ""
    facts = {"what": counter_words(name), "own": f"{own[name]:,}", "their": f"{theirs.get(name, 0):,}"}
    if ratios[name] > 1:
        return said("Yours has more {what} than the reference: {own} against {their}.", **facts)
    return said("Yours has fewer {what} than the reference: {own} against {their}.", **facts)


def _code(text: str) -> list[str]:
    """The lines without comments and white space, to compare two answers."""
    lines = ("".join(line.partition("//")[0].split()) for line in text.splitlines())
    return [line for line in lines if line]


def _difference(text: str, reference: str) -> Iterator[Text]:
    styles = {"-": "red", "+": "green"}
    for line in difflib.ndiff(text.splitlines(), reference.splitlines()):
        if line[0] != "?":
            yield Text(f"  {line}", styles.get(line[0], ""))
