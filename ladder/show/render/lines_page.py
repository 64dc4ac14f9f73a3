"""Renders a stage's source with its costs as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from pygments import lex
from pygments.lexers import CppLexer
from pygments.token import Comment, Keyword, Literal, Name, _TokenType

from ladder.counts import Annotated, Line, Listing, Part
from ladder.operations import AnyProblem
from ladder.show.render.document import document

#: The number of lines listed in the summary of the costliest.
_COSTLIEST = 10
#: Lines of context around lines with a cost, in files other than the kernel's.
_CONTEXT = 3
#: The cells of a line that does not access shared memory.
_NO_COUNTS = '<td></td><td class="bar"></td><td class="ideal"></td><td></td><td class="bar"></td>'
_STYLES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "p"),
    (Comment, "c"),
    (Keyword, "k"),
    (Literal, "n"),
    (Name.Function, "f"),
)


def page(annotated: Annotated, stage: str, problem: AnyProblem, arch: str) -> str:
    """Renders the whole page: totals, then every file that accesses shared memory.

    ``problem`` and the virtual GPU ``arch`` are those of the counts.
    """
    title = f"{stage}, line by line"
    counted = f"{problem}; counted by the emulator for {arch}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(counted)}</p>",
        totals(annotated),
        costliest(annotated, heading="h2"),
        *listings(annotated, heading="h2"),
    ]
    return document(title, "\n".join(body))


def totals(annotated: Annotated) -> str:
    """Renders the counts of the whole kernel."""
    total = annotated.total
    kind = "none" if total.conflicts == 0 else "conflicts"
    cells = (
        ("wavefronts", total.wavefronts, "wavefronts"),
        ("", total.ideal, "ideal wavefronts"),
        (kind, total.conflicts, "bank conflicts"),
    )
    boxes = (f'<div class="{name}"><b>{_number(value) or "0"}</b>{text}</div>' for name, value, text in cells)
    return f'<div class="totals">{"".join(boxes)}</div>'


def costliest(annotated: Annotated, *, heading: str, prefix: str = "") -> str:
    """Renders the costliest kernel lines with links to them; "" if no line has a cost.

    ``heading`` is the HTML element of the heading; ``prefix`` is prepended to link targets, so that one page
    can show several kernels.
    """
    by_conflicts = bool(annotated.total.conflicts)
    lines = [
        (line.counts.conflicts if by_conflicts else line.counts.wavefronts, listing, line)
        for listing in annotated.files
        for line in listing.lines
        if line.counts is not None and not line.is_helper
    ]
    lines.sort(key=lambda item: -(item[0] or 0))
    total = annotated.total.conflicts if by_conflicts else annotated.total.wavefronts
    rows = [
        f"<tr><td>{_number(value)}</td>{_bar('x' if by_conflicts else 'w', value / total)}"
        f'<td class="no"><a href="#{_anchor(prefix, listing, line)}">{line.number}</a></td>'
        f'<td class="code">{escape(line.text.strip())}</td></tr>'
        for value, listing, line in lines[:_COSTLIEST]
        if value and total
    ]
    if not rows:
        return ""
    what = "bank conflicts" if by_conflicts else "wavefronts"
    return (
        f'<{heading}>Where the {what} are</{heading}>\n<div class="wide"><table class="source"><thead><tr>'
        f'<th>{what.split()[-1]}</th><th class="bar">share</th><th>line</th><th>source</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def listings(annotated: Annotated, *, heading: str, prefix: str = "") -> Iterator[str]:
    """Renders a legend, then each file: the kernel's in full, others only around lines with a cost."""
    yield (
        "<p>Beside each line: its wavefronts of shared memory and their share of the kernel's; the ideal "
        "(what its distinct bytes would fit, 128 a wavefront); its bank conflicts and their share.</p>"
    )
    if any(line.is_helper for listing in annotated.files for line in listing.lines):
        yield (
            "<p>↳ marks a line of a function that is inlined into the kernel: its cost is counted again at "
            "the kernel's lines that call it. Open a line to see which.</p>"
        )
    for number, listing in enumerate(annotated.files):
        yield f'<{heading} class="file">{escape(_display(listing.path))}</{heading}>'
        yield _table(listing, annotated, None if number == 0 else _CONTEXT, prefix)


def _anchor(prefix: str, listing: Listing, line: Line) -> str:
    return escape(f"{prefix}{listing.path.name}-{line.number}")


def _table(listing: Listing, annotated: Annotated, context: int | None, prefix: str) -> str:
    highlighted = _highlighted("\n".join(line.text for line in listing.lines))
    rows = [
        '<div class="wide"><table class="source">',
        '<thead><tr><th>wavefronts</th><th class="bar">share</th>',
    ]
    rows.append('<th class="ideal">ideal</th><th>conflicts</th><th class="bar">share</th>')
    rows.append("<th>line</th><th>source</th></tr></thead>\n<tbody>")
    for line in listing.near(context):
        if line is None:
            rows.append(f'<tr class="gap">{_NO_COUNTS}<td class="no">⋮</td><td></td></tr>')
        else:
            rows.append(_row(line, annotated, highlighted[line.number - 1], _anchor(prefix, listing, line)))
    rows.append("</tbody></table></div>")
    return "\n".join(rows)


def _row(line: Line, annotated: Annotated, code: str, anchor: str) -> str:
    number = f"↳ {line.number}" if line.is_helper else str(line.number)
    if line.counts is None:
        return f'<tr>{_NO_COUNTS}<td class="no">{number}</td><td class="code">{code}</td></tr>'
    counts = line.counts
    classes = ["cost" if counts.conflicts == 0 else "conflict"] + (["helper"] if line.is_helper else [])
    cells = [
        f"<td>{_number(counts.wavefronts)}</td>",
        _bar("w", annotated.wavefront_share(counts)),
        f'<td class="ideal">{_number(counts.ideal)}</td>',
        f"<td>{_number(counts.conflicts)}</td>",
        _bar("x", annotated.conflict_share(counts) if counts.conflicts else None),
        f'<td class="no">{number}</td>',
        f'<td class="code">{_with_parts(line, code)}</td>',
    ]
    return f'<tr class="{" ".join(classes)}" id="{anchor}">{"".join(cells)}</tr>'


def _with_parts(line: Line, code: str) -> str:
    if not line.parts:
        return code
    heading = "called by" if line.is_helper else "in"
    lines = "".join(f"<p>{heading} {_part(part)}</p>" for part in line.parts)
    return f"<details><summary>{code}</summary>{lines}</details>"


def _part(part: Part) -> str:
    text = f"{part.path.name}:{part.number}  {_number(part.counts.wavefronts)} wavefronts, "
    conflicts = _number(part.counts.conflicts) or "0"
    return escape(f"{text}{conflicts} conflicts  {part.text}")


def _bar(kind: str, share: float | None) -> str:
    if share is None:
        return '<td class="bar"></td>'
    return f'<td class="bar {kind}"><i style="width:{share * 104:.1f}px"></i><span>{share:.1%}</span></td>'


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}" if value else ""


def _highlighted(text: str) -> list[str]:
    """Highlights C++; returns each line as HTML."""
    return "".join(_spans(text)).split("\n")


def _spans(text: str) -> Iterator[str]:
    for token, value in lex(text, CppLexer(stripnl=False, ensurenl=False)):
        name = next((name for kind, name in _STYLES if token in kind), None)
        # A token may span several lines, but its HTML span must not.
        pieces = (escape(piece, quote=False) for piece in value.split("\n"))
        yield "\n".join(
            f'<span class="{name}">{piece}</span>' if name and piece else piece for piece in pieces
        )


def _display(path: Path) -> str:
    """A file's path relative to the folder of all stages, or else as short as possible."""
    parts = path.parts
    if "stages" in parts:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index("stages") :])
    return "/".join(parts[-2:])
