"""Renders the sanitizer's findings in words and as tables for the terminal."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ladder.common.wording import said
from ladder.compile import Remark
from ladder.run.emulator import Finding, Party, retold
from ladder.show.render.tables import short_kernel

_SHOWN_THREADS = 2


def findings_lines(
    findings: Sequence[Finding], name: str, remarks: Sequence[Finding] = ()
) -> Iterator[RenderableType]:
    """Yields a verdict on ``name``, and a small table for each finding; then for each remark."""
    count = "one finding" if len(findings) == 1 else f"{len(findings)} findings"
    verdict = (count, "bold red") if findings else ("clean", "green")
    yield Text.assemble((name, "bold"), ": ", verdict)
    for finding in [*findings, *remarks]:
        yield ""
        yield finding_table(finding)


def remark_lines(remarks: Sequence[Remark]) -> Iterator[RenderableType]:
    """Yields a small table for each remark of ptxas, in the order of lines; they are no faults."""
    for remark in sorted(remarks, key=lambda one: (one.kernel_file, one.kernel_line, one.line)):
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        table.add_row(
            Text(""), Text.assemble(("remark of ptxas", "bold yellow"), (f"   {remark.number}", "dim"))
        )
        table.add_row("at", _source_line(remark.kernel_file, remark.kernel_line))
        if (remark.file, remark.line) != (remark.kernel_file, remark.kernel_line):
            table.add_row("", _source_line(remark.file, remark.line))
        table.add_row("what", remark.message)
        table.add_row("advice", remark.advice)
        yield ""
        yield table


def _source_line(file: str, line: int) -> Text:
    text = linecache.getline(file, line).strip() if line else ""
    return Text.assemble((f"{Path(file).name}:{line}" if line else "unknown", "cyan"), f"  {text}")


def finding_table(finding: Finding) -> Table:
    """A table of one fault."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    kind = retold(finding.kind)
    title = (said("remark: {kind}", kind=kind), "bold yellow") if finding.is_remark else (kind, "bold red")
    table.add_row(Text(""), Text.assemble(title, (times_text(finding), "dim")))
    for heading, text in finding_facts(finding):
        table.add_row(heading, text)
    return table


def times_text(finding: Finding) -> str:
    """How often the fault happened; "" if once."""
    return "" if finding.count == 1 else "   " + said("{n:,} times", n=finding.count)


def finding_facts(finding: Finding) -> Iterator[tuple[str, Text]]:
    """Yields heading and text of where (the kernel's line, then its helpers'), what, why, and the fix."""
    if finding.kernel:
        yield said("kernel"), Text(short_kernel(finding.kernel))
    for heading, party in ((said("at"), finding.who), (said("with"), finding.other)):
        if party is not None:
            yield heading, _party_text(party)
    if finding.host_place:
        yield said("host"), source_text(finding.host_place)
    if finding.element:
        yield said("what"), Text(retold(finding.element))
    yield said("why"), Text(retold(finding.message))
    yield said("advice"), Text(retold(finding.advice), style="cyan")


def _party_text(party: Party) -> Text:
    text = Text()
    places = [(party.kernel_file, party.kernel_line), (party.kernel_file, party.own_line)]
    for file, line in dict.fromkeys([*places, (party.file, party.line)]):
        if line:
            text.append(source_text(f"{file}:{line}")).append("\n")
    if not party.line:
        text.append(f"{party.opcode}, PTX line {party.ptx_line} (no -lineinfo)\n")
    if party.block is not None:
        text.append(f"block {party.block}", "dim")
    if (who := party_threads(party)) and party.block is not None:
        who = f", {who}"
    return text.append(who, "dim")


def party_threads(party: Party) -> str:
    """The threads, the warp and the lanes of a party, as far as they are known."""
    parts = []
    if party.block_shape is not None and party.threads:
        parts.append(_threads(party.threads, party.block_shape))
    if party.warp is not None:
        parts.append(f"warp {party.warp}")
    if party.lanes:
        form = "lanes {which}" if len(party.lanes) > 1 else "lane {which}"
        parts.append(said(form, which=_runs(party.lanes)))
    return ", ".join(parts)


def source_text(place: str) -> Text:
    """The place, such as ``kernel.cu:135``, and its line of source."""
    file, _, line = place.rpartition(":")
    text = Text.assemble((f"{Path(file).name}:{line}", "bold"))
    lines = _lines_of(file)
    if line.isdigit() and 0 < int(line) <= len(lines):
        text.append("  " + lines[int(line) - 1].strip())
    return text


@functools.cache
def _lines_of(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def _threads(threads: Sequence[tuple[int, int, int]], shape: tuple[int, int, int]) -> str:
    """Their ``threadIdx``: x alone if the block has one dimension, else the first few of them."""
    if shape[1:] == (1, 1):
        names = _runs([x for x, _, _ in threads])
    else:
        names = ", ".join(str(one) for one in threads[:_SHOWN_THREADS])
        names += ", ..." if len(threads) > _SHOWN_THREADS else ""
    return said("threads {which}" if len(threads) > 1 else "thread {which}", which=names)


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: ``0-7,16``."""
    runs = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)
