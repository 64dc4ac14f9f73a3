"""What a verdict says, line by line: for a terminal, and for a cell of a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ladder.exercises.judge import Verdict
from ladder.render import finding_table


def verdict_lines(verdict: Verdict) -> Iterator[RenderableType]:
    """Solved or not yet, the problems that were tried, and what is wrong, with commands that show more."""
    name = verdict.exercise.name
    if verdict.passed:
        yield Text.assemble(("solved", "bold green"), f" {name}")
        return
    yield Text.assemble(("not yet", "bold red"), f" {name}")
    for text in verdict.right:
        yield Text(f"  right  {text}", "green")
    for text in verdict.wrong:
        yield Text(f"  wrong  {text}", "red")
    for finding in verdict.findings:
        yield ""
        if finding.access is None:
            yield Text(finding.text)
        else:
            yield Text(f"On {finding.problem}:")
            yield finding_table(finding.access)
        for command in finding.try_next:
            yield Text(f"  {command}", "cyan")
