"""Renders verdicts line by line, for terminals and notebook cells."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from ladder.common.wording import said
from ladder.course.exercises.answers import read_answers
from ladder.course.exercises.deadlocks import waits_of
from ladder.course.exercises.markers import solution_text
from ladder.course.exercises.reference_counts import reference_counts
from ladder.course.exercises.verdict import Remark, Verdict, counter_words
from ladder.course.exercises.wording import worded
from ladder.run.emulator import Finding, Party, retold
from ladder.show.render import party_threads, source_text, times_text

_SHOWN_FILES = 5
#: The width of "  right  ".
_HEADING = 9
#: What two lines with an indent, broken between words, hold less than two whole ones.
_INDENTS = 20
#: The most lines of a remark's text. With the name, the problems, another remark and a command they are 12.
_MOST_ROWS = 8
#: Where an allocation lies, which differs from run to run.
_ADDRESSES = re.compile(r" \[0x[0-9a-f]+, 0x[0-9a-f]+\)")
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
    if verdict.right:
        yield Text("  " + said("right  {on}", on=_listed(verdict.right)), "green")
    if verdict.wrong:
        yield Text("  " + said("wrong  {on}", on=_listed(verdict.wrong)), "red")
    # The access before the numbers that it made wrong.
    first, *others = sorted(verdict.findings, key=lambda one: one.kind == "output")
    yield from _text_lines(first) if first.access is None else _access_lines(first, first.access)
    if first.access is not None and verdict.own_lines and not _is_own(verdict.own_lines, first.access):
        yield Text("  " + said("Your lines are {place}.", place=verdict.own_lines))
    for finding in others:
        yield _cut(Text(said("Also: {what}", what=_in_a_line(finding, first.on))))
    for command in first.try_next:
        yield Text(f"  {command}", "cyan")


def _listed(names: Sequence[str]) -> str:
    """As many of the names as fit into a line, and how many more there are."""
    for shown in range(len(names), 0, -1):
        text = "; ".join(names[:shown])
        if shown < len(names):
            text += said(" and {count} more", count=len(names) - shown)
        if cell_len(text) <= PROSE_WIDTH - _HEADING:
            break
    return text


def _text_lines(remark: Remark) -> Iterator[Text]:
    """A remark without an access: its first sentences, as far as there is room, and its last one. Lines with
    an indent quote the source and are cut.
    """
    lines = remark.text.splitlines()
    rows = [1 if line.startswith("  ") else max(1, -(-cell_len(line) // PROSE_WIDTH)) for line in lines]
    kept = len(lines)
    while kept > 2 and sum(rows[: kept - 1]) + rows[-1] > _MOST_ROWS:
        kept -= 1
    for line in [*lines[: kept - 1], *lines[-1:]]:
        yield _cut(Text(line)) if line.startswith("  ") else Text(line)


def _access_lines(remark: Remark, access: Finding) -> Iterator[RenderableType]:
    """The fault, the student's line of each party, the reason and the advice."""
    yield Text.assemble(
        said("On {on}:", on=remark.on), " ", (retold(access.kind), "bold red"), (times_text(access), "dim")
    )
    reason, waits = waits_of(access.message, lambda place: _of_file(place, access))
    if not waits:
        for heading, party in ((said("at"), access.who), (said("with"), access.other)):
            if party is not None and (party is access.who or _line(party) != _line(access.who)):
                yield _party_line(heading, party)
    if access.host_place:
        yield Text(f"  {said('host'):5} ").append(source_text(access.host_place))
    reason = _ADDRESSES.sub("", _first_sentence(reason))
    if access.other is not None and cell_len(reason) > PROSE_WIDTH - 2:
        reason = reason.partition(": ")[0]
    yield Padding(_cut(Text(reason), 2 * PROSE_WIDTH - _INDENTS), (0, 0, 0, 2), expand=False)
    yield from (_cut(Text(wait)) for wait in waits)
    yield Padding(Text(retold(access.advice), "cyan"), (0, 0, 0, 2), expand=False)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?])\s|(?<=。)", text, maxsplit=1)[0]


def _party_line(heading: str, party: Party) -> Text:
    """The party's line in the student's files, where it was called if that is elsewhere, and its threads."""
    text = Text(f"  {heading:5} ").append(source_text(":".join(map(str, _place(party)))))
    if party.kernel_line and party.kernel_line != party.own_line:
        text.append("   " + said("called at line {line}", line=party.kernel_line), "dim")
    who = f"   {party_threads(party)}"
    return text.append(who, "dim") if text.cell_len + cell_len(who) <= PROSE_WIDTH else _cut(text)


def _line(party: Party | None) -> tuple[str, int, int] | None:
    """What :func:`_party_line` shows of the source; the two parties may be at one line."""
    return None if party is None else (*_place(party), party.kernel_line)


def _of_file(place: str, access: Finding) -> str:
    """A place such as ``kernel.cu:12`` in the kernel's folder, with its source."""
    folder = Path(access.who.kernel_file).parent if access.who else Path()
    return source_text(f"{folder}/{place}").plain


def _cut(text: Text, width: int = PROSE_WIDTH) -> Text:
    """The text, cut to one line or to a width."""
    text.truncate(width, overflow="ellipsis")
    return text


def _place(party: Party) -> tuple[str, int]:
    """The innermost line of the student's files, or else of the kernel's."""
    if Path(party.file).parent == Path(party.kernel_file).parent:
        return party.file, party.line
    return party.kernel_file, party.own_line


def _is_own(own_lines: str, access: Finding) -> bool:
    """Whether a party's line is among the student's, such as ``kernel.cu:12-15``."""
    file, _, lines = own_lines.rpartition(":")
    first, _, last = lines.partition("-")
    places = [_place(party) for party in (access.who, access.other) if party is not None]
    return any(
        Path(path).name == Path(file).name and int(first) <= line <= int(last or first)
        for path, line in places
    )


def _in_a_line(remark: Remark, on: str) -> str:
    """What a further remark says, in short."""
    if remark.access is not None:
        text = retold(remark.access.kind)
        if remark.access.who is not None:
            file, line = _place(remark.access.who)
            text += said(", at {place}", place=source_text(f"{file}:{line}").plain)
        return text
    first, *rest = remark.text.splitlines()
    if rest and first == said("On {on}:", on=remark.on):
        sentences = " ".join(rest[:2])
        return sentences if remark.on == on else f"{first} {sentences}"
    return first.removeprefix(said("On {on}:", on=on)).strip()


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
