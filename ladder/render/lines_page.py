"""The source of a stage with its costs, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from pygments import lex
from pygments.lexers import CppLexer
from pygments.token import Comment, Keyword, Literal, Name, _TokenType

from ladder.lines import Annotated, Line, Listing, Part
from ladder.operations import AnyProblem
from ladder.plots import BLUE, INK, ORANGE

#: Lines named above the listings.
_COSTLIEST = 10
#: Lines shown around those that cost something in files other than the kernel's.
_CONTEXT = 3
_STYLES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "p"),
    (Comment, "c"),
    (Keyword, "k"),
    (Literal, "n"),
    (Name.Function, "f"),
)

_CSS = f"""
:root {{ color-scheme: light; --mono: ui-monospace, "DejaVu Sans Mono", monospace; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; padding: 28px 36px 60px; background: #fff; color: {INK};
  font: 17px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }}
h1 {{ font-size: 30px; margin: 0 0 2px; }}
h2 {{ font-size: 21px; margin: 34px 0 8px; }} h2.file {{ font-family: var(--mono); }}
p {{ margin: 4px 0; max-width: 100ch; }}
.totals {{ display: flex; gap: 44px; margin: 18px 0 10px; }}
.totals b {{ display: block; font-size: 30px; font-variant-numeric: tabular-nums; }}
.totals .conflicts b {{ color: {ORANGE}; }} .totals .none b {{ color: #00734f; }}
.totals .wavefronts b {{ color: {BLUE}; }}
table {{ border-collapse: collapse; width: 100%; font: 15px/1.5 var(--mono); }}
th {{ position: sticky; top: 0; background: #fff; border-bottom: 2px solid {INK}; text-align: right;
  font: 600 15px/1.3 system-ui, "DejaVu Sans", sans-serif; padding: 6px 8px; z-index: 1; }}
th:last-child {{ text-align: left; }}
td {{ padding: 0 8px; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
td.bar {{ width: 120px; min-width: 120px; position: relative; }}
td.bar i {{ position: absolute; inset: 3px auto 3px 8px; border-radius: 2px; opacity: .5; }}
td.bar span {{ position: relative; }}
.w i {{ background: {BLUE}; }} .x i {{ background: {ORANGE}; }}
td.no {{ color: #767676; border-right: 1px solid #ccc; }}
td.code {{ text-align: left; white-space: pre; width: 100%; }}
tr.cost td {{ background: #f3f7fb; }} tr.conflict td {{ background: #fdf1e8; }}
tr.helper td.no {{ font-style: italic; }}
tr.gap td {{ color: #767676; }}
a {{ color: #00508f; }} tr:target td {{ outline: 2px solid {ORANGE}; outline-offset: -1px; }}
tr {{ scroll-margin-top: 90px; }}
summary {{ cursor: pointer; white-space: pre; list-style: none; }}
summary::-webkit-details-marker {{ display: none; }}
summary::after {{ content: "  ▸"; color: #767676; }} details[open] summary::after {{ content: "  ▾"; }}
details p {{ font: 14px/1.5 var(--mono); margin: 0 0 0 2ch; white-space: pre; max-width: none; }}
.c {{ color: #5c6b5c; font-style: italic; }} .p {{ color: #6f42a1; }}
.k {{ color: #00508f; font-weight: 600; }} .n {{ color: #8a3b00; }} .f {{ color: #4a4a00; }}
"""


def page(annotated: Annotated, stage: str, problem: AnyProblem, arch: str) -> str:
    """The whole page: totals, then every file in which shared memory is accessed.

    ``problem`` is what was counted, on the virtual GPU ``arch``.
    """
    counted = f"{problem}; counted by the emulator for {arch}"
    kernels = {listing.path for listing in annotated.files[:1]}
    has_helpers = any(line.is_helper for listing in annotated.files for line in listing.lines)
    body = [
        f"<h1>{escape(stage)}, line by line</h1>",
        f"<p>{escape(counted)}</p>",
        _totals(annotated),
        "<p>Beside each line: its wavefronts of shared memory and their share of the kernel's; the ideal "
        "(what its distinct bytes would fit, 128 a wavefront); its bank conflicts and their share.</p>",
    ]
    if has_helpers:
        body.append(
            "<p>↳ marks a line of a function that is inlined into the kernel: its cost is counted again at "
            "the kernel's lines that call it. Open a line to see which.</p>"
        )
    body.append(_costliest(annotated))
    for listing in annotated.files:
        context = None if listing.path in kernels else _CONTEXT
        body.append(
            f'<h2 class="file">{escape(_display(listing.path))}</h2>\n{_table(listing, annotated, context)}'
        )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(stage)}, line by line</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _totals(annotated: Annotated) -> str:
    total = annotated.total
    kind = "none" if total.conflicts == 0 else "conflicts"
    cells = (
        ("wavefronts", total.wavefronts, "wavefronts"),
        ("", total.ideal, "ideal wavefronts"),
        (kind, total.conflicts, "bank conflicts"),
    )
    boxes = (f'<div class="{name}"><b>{_number(value) or "0"}</b>{text}</div>' for name, value, text in cells)
    return f'<div class="totals">{"".join(boxes)}</div>'


def _costliest(annotated: Annotated) -> str:
    """The kernel's lines that cost most, with links to them."""
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
        f'<td class="no"><a href="#{_anchor(listing, line)}">{line.number}</a></td>'
        f'<td class="code">{escape(line.text.strip())}</td></tr>'
        for value, listing, line in lines[:_COSTLIEST]
        if value and total
    ]
    if not rows:
        return ""
    heading = "bank conflicts" if by_conflicts else "wavefronts"
    return (
        f"<h2>Where the {heading} are</h2>\n<table><thead><tr><th>{heading.split()[-1]}</th><th>share</th>"
        f"<th>line</th><th>source</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _anchor(listing: Listing, line: Line) -> str:
    return escape(f"{listing.path.name}-{line.number}")


def _table(listing: Listing, annotated: Annotated, context: int | None) -> str:
    highlighted = _highlighted("\n".join(line.text for line in listing.lines))
    rows = ["<table>", "<thead><tr><th>wavefronts</th><th>share</th><th>ideal</th><th>conflicts</th>"]
    rows.append("<th>share</th><th>line</th><th>source</th></tr></thead>\n<tbody>")
    for line in listing.near(context):
        if line is None:
            rows.append('<tr class="gap"><td colspan="5"></td><td class="no">⋮</td><td></td></tr>')
        else:
            rows.append(_row(line, annotated, highlighted[line.number - 1], _anchor(listing, line)))
    rows.append("</tbody></table>")
    return "\n".join(rows)


def _row(line: Line, annotated: Annotated, code: str, anchor: str) -> str:
    number = f"↳ {line.number}" if line.is_helper else str(line.number)
    if line.counts is None:
        return f'<tr><td colspan="5"></td><td class="no">{number}</td><td class="code">{code}</td></tr>'
    counts = line.counts
    classes = ["cost" if counts.conflicts == 0 else "conflict"] + (["helper"] if line.is_helper else [])
    cells = [
        f"<td>{_number(counts.wavefronts)}</td>",
        _bar("w", annotated.wavefront_share(counts)),
        f"<td>{_number(counts.ideal)}</td>",
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
    """Each line of C++ as HTML."""
    return "".join(_spans(text)).split("\n")


def _spans(text: str) -> Iterator[str]:
    for token, value in lex(text, CppLexer(stripnl=False, ensurenl=False)):
        name = next((name for kind, name in _STYLES if token in kind), None)
        # A token may run over several lines; a span must not.
        pieces = (escape(piece, quote=False) for piece in value.split("\n"))
        yield "\n".join(
            f'<span class="{name}">{piece}</span>' if name and piece else piece for piece in pieces
        )


def _display(path: Path) -> str:
    """A file's path from the folder of all stages on, or else as short as can be."""
    parts = path.parts
    if "stages" in parts:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index("stages") :])
    return "/".join(parts[-2:])
