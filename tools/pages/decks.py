"""A lesson as slides: short texts, one figure each, and the lesson's prose as the speaker's notes.

A heading begins a slide. Of each paragraph the slide has the first sentence; the notes have all of it. A
formula, a picture, a table and eight lines of code have a slide each. A prediction has three: the question, a
hint, the answer. The Python that makes the outputs is left out.
"""

from __future__ import annotations

import base64
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import nbformat
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt
from nbconvert.filters import markdown2html
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer

from ladder.course.lessons.predictions import PREDICT_FIRST
from ladder.course.lessons.questions import Question
from tools.pages.formulas import mathml
from tools.pages.quizzes import answer_text, question_of, replace_notes

#: What a slide may hold besides its notes.
MOST_WORDS = 40
MOST_LINES = 8
#: Slides of one table or one output; the notes have all of it.
_MOST_PARTS = 3
#: Characters in a row of a table above which it has the smallest letters.
_WIDE = 44
#: Points that a figure leaves room for.
_POINTS_BESIDE = 2
#: Code, which stays, or a formula.
_MATH = re.compile(r"(`[^`]*`)|\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_DISPLAYED = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\([^)]*\)")
#: Between sentences. A capital letter, code or a formula begins the next one, in Chinese anything.
_BETWEEN = re.compile(r"(?<=[.?!:])\s+(?=[A-Z`$*(\"])|(?<=[。？！：])\s*")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_SVG_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
#: A line of a listing with nothing but its number, or no line.
_BLANK = re.compile(r"\s*\d*")
_NUMBERED = re.compile(r"^ {0,3}(\S*) {2}")
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Slide:
    """All in HTML. ``figure`` is a formula, a table, a picture or code; ``notes`` are the lesson's prose.
    A quiz asks, hints or answers, or names an exercise.
    """

    title: str
    points: tuple[str, ...] = ()
    figure: str = ""
    notes: str = ""
    is_quiz: bool = False


@dataclass(frozen=True)
class Deck:
    """A lesson's slides. ``questions`` are what a handout asks, as HTML, ``drawing`` its picture, if any."""

    title: str
    slides: tuple[Slide, ...]
    questions: tuple[str, ...] = ()
    drawing: str = ""


def count_words(text: str) -> int:
    """The words that a reader sees of this HTML. A formula is one; two Chinese characters are one."""
    soup = BeautifulSoup(text, "html.parser")
    for formula in soup.find_all("math"):
        formula.replace_with(" x ")
    seen = soup.get_text(" ")
    return len(_CHINESE.sub(" ", seen).split()) + -(-len(_CHINESE.findall(seen)) // 2)


def with_mathml(text: str) -> str:
    """The text with its formulas as MathML, which browsers know, so that formulas need no script."""

    def drawn(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        return mathml(found[2] or found[3], display="block" if found[2] else "inline")

    return _MATH.sub(drawn, text)


def as_html(markdown: str) -> str:
    """Prose as HTML, without its links, which lead to no slide."""
    return str(markdown2html(with_mathml(_LINK.sub(r"\1", markdown)))).strip()


def _inline(markdown: str) -> str:
    text = as_html(markdown)
    return text.removeprefix("<p>").removesuffix("</p>") if text.count("<p>") == 1 else text


def shortened(markdown: str, most: int) -> str:
    """The first sentences, as HTML, with at most ``most`` words in all; at least the begin of one."""
    sentences = [one for one in _BETWEEN.split(" ".join(markdown.split())) if one]
    taken = ""
    for sentence in sentences:
        longer = f"{taken} {sentence}".strip()
        if count_words(_inline(longer)) > most:
            break
        taken = longer
    if not taken and sentences:
        shortest = min(sentences, key=lambda one: count_words(_inline(one)))
        taken = shortest if count_words(_inline(shortest)) <= most else _cut(shortest, most)
    return _inline(taken)


def _cut(sentence: str, most: int) -> str:
    """The sentence up to a comma or a space, with an ellipsis."""
    for ends in (r"[,;，；]", r"\s|(?<=[\u3400-\u9fff])"):
        places = [found.start() for found in re.finditer(ends, sentence)]
        for place in reversed(places):
            text = f"{sentence[:place].rstrip()} …"
            is_whole = all(text.count(mark) % 2 == 0 for mark in ("`", "$", "**"))
            if is_whole and place and count_words(_inline(text)) <= most:
                return text
    return "…"


@dataclass
class _Builder:
    """Gathers a deck. ``title`` is that of the current heading."""

    title: str = ""
    slides: list[Slide] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    drawing: str = ""

    def head(self, title: str) -> None:
        self.flush()
        self.title = shortened(title, 12)
        self.notes.append("")

    def say(self, markdown: str) -> None:
        """A paragraph or an item of a list: its first sentence is a point, all of it is in the notes."""
        room = MOST_WORDS - count_words(self.title)
        point = shortened(_first_sentence(markdown), min(room, 26))
        if count_words(" ".join([*self.points, point])) > room:
            self.flush()
        self.points.append(point)
        self.notes.append(as_html(markdown))

    def flush(self) -> None:
        """Ends the slide of points, if there is one."""
        if self.points or self.notes:
            self.slides.append(Slide(self.title, tuple(self.points), "", "\n".join(filter(None, self.notes))))
        self.points, self.notes = [], []

    def show(self, figure: str, notes: str = "") -> None:
        """A figure, beside the points that lead to it."""
        if len(self.points) > _POINTS_BESIDE:
            self.flush()
        notes = "\n".join(filter(None, [*self.notes, notes]))
        self.slides.append(Slide(self.title, tuple(self.points), figure, notes))
        self.points, self.notes = [], []

    def code(self, lines: Sequence[str], name: str = "", most: int = 9) -> None:
        """Code or what a program prints, eight lines to a slide."""
        kept = [line for line in lines if not _BLANK.fullmatch(line) or (line.strip() and not name)]
        whole = f"<pre>{html.escape(chr(10).join(lines))}</pre>"
        for part in _parts(kept, MOST_LINES)[:most]:
            self.show(_coloured(part, name), whole)

    def table(self, rows: Sequence[Sequence[str]], notes: str) -> None:
        """A table of HTML cells, the first row its head: as many rows to a slide as the words allow."""
        head, body = rows[0], rows[1:]
        room = MOST_WORDS - count_words(" ".join([self.title, *head]))
        if sum(count_words(" ".join(row)) for row in (*body, self.points)) > room:
            self.flush()
        part: list[Sequence[str]] = []
        parts: list[list[Sequence[str]]] = []
        for row in body:
            words = sum(count_words(" ".join(one)) for one in (*part, row))
            if part and (words > room or len(part) == MOST_LINES - 1):
                parts.append(part)
                part = []
            if count_words(" ".join(row)) <= room:
                part.append(row)
        for one in [*parts, part][:_MOST_PARTS]:
            if one:
                self.show(_table([head, *one]), notes)


def _first_sentence(markdown: str) -> str:
    sentences = _BETWEEN.split(" ".join(markdown.split()))
    return sentences[0] if sentences[0][-1:] not in ":：" else " ".join(sentences[:2])


def _parts(lines: Sequence[str], most: int) -> list[Sequence[str]]:
    """The lines in as few parts as are needed, of nearly the same length."""
    count = -(-len(lines) // most)
    ends = [len(lines) * number // count for number in range(count + 1)] if count else []
    return [lines[begin:end] for begin, end in itertools.pairwise(ends)]


def _coloured(lines: Sequence[str], name: str) -> str:
    """Code of CUDA with its numbers of lines, or, without a ``name``, what a program printed."""
    if not name:
        return f'<pre tabindex="0">{html.escape(chr(10).join(lines))}</pre>'
    marks = [found[1] if (found := _NUMBERED.match(line)) else "" for line in lines]
    bare = [_NUMBERED.sub("", line) for line in lines]
    indent = min(len(line) - len(line.lstrip()) for line in bare)
    text = highlight(
        "\n".join(line[indent:] for line in bare),
        CppLexer(stripnl=False),
        HtmlFormatter(noclasses=True, nowrap=True, style="default"),
    ).rstrip("\n")
    rows = zip(marks, text.split("\n"), strict=True)
    body = "\n".join(f'<span class="mark">{html.escape(mark):>4}</span>  {row}' for mark, row in rows)
    return f'<p class="name">{html.escape(name)}</p><pre tabindex="0">{body}</pre>'


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    cells = "".join(f'<th scope="col">{cell}</th>' if cell else "<td></td>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body)
    wide = max(sum(len(_text(cell)) for cell in row) for row in rows) > _WIDE
    kind = ' class="wide"' if wide else ""
    return f"<table{kind}><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def _formula(latex: str) -> str:
    """Formulas that stand side by side, one below the other."""
    lines = [mathml(one, display="block") for one in re.split(r"\\q?quad", latex) if one.strip(" ,.\n")]
    return f'<div class="formula">{"".join(lines)}</div>'


def _picture(svg: str, title: str) -> str:
    found = _SVG_TITLE.search(svg)
    says = html.escape(html.unescape(found[1].strip() if found else _text(title)))
    data = base64.b64encode(svg.encode()).decode()
    return f'<img class="picture" alt="{says}" src="data:image/svg+xml;base64,{data}">'


def _text(text: str) -> str:
    return " ".join(BeautifulSoup(text, "html.parser").get_text(" ").split())


def deck(
    notebook: nbformat.NotebookNode, words: Mapping[str, str], questions: Mapping[str, Question]
) -> Deck:
    """The slides of a lesson with its outputs. ``words`` has the slides' own words, by their English."""
    replace_notes(notebook, "", {PREDICT_FIRST, words.get(PREDICT_FIRST, PREDICT_FIRST)})
    builder, prose = _Builder(), ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            _add_prose(builder, cell.source)
            prose = cell.source
        elif (name := question_of(cell)) is not None:
            _add_question(builder, prose, questions[name], words)
        elif cell.source.startswith("%exercise "):
            _add_exercise(builder, cell, words)
        else:
            _add_outputs(builder, cell)
    builder.flush()
    slides = _joined(builder.slides)
    return Deck(slides[0].title, slides, tuple(builder.questions), builder.drawing)


def _joined(slides: Iterable[Slide]) -> tuple[Slide, ...]:
    """A slide with nothing but a title passes its notes to the next one, if that has the same title."""
    found: list[Slide] = []
    for slide in slides:
        last = found[-1] if found else None
        if last and last.title == slide.title and not last.points and not last.figure:
            found[-1] = replace(slide, notes=last.notes + slide.notes)
        else:
            found.append(slide)
    return tuple(found)


def _add_prose(builder: _Builder, markdown: str) -> None:
    for kind, text in _blocks(markdown):
        if kind == "heading":
            builder.head(text)
        elif kind == "code":
            builder.code(text.splitlines())
        elif kind == "table":
            rows = BeautifulSoup(as_html(text), "html.parser").find_all("tr")
            cells = [[cell.decode_contents() for cell in row.find_all(["th", "td"])] for row in rows]
            builder.table(cells, as_html(text))
        else:
            for formula in _DISPLAYED.findall(text):
                builder.show(_formula(formula), as_html(text))
            plain = " ".join(_DISPLAYED.sub(" ", text).split())
            if len(plain) > 1:
                builder.say(plain)


def _blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """The headings, paragraphs, items of lists, tables and code of a text, in order, each with its kind."""
    lines = markdown.split("\n")
    tokens = _MARKDOWN.parse(markdown)
    in_table = False
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            yield "heading", following.content
        elif token.type == "paragraph_open" and following is not None and not in_table:
            yield "paragraph", following.content
        elif token.type == "table_open" and token.map:
            in_table = True
            yield "table", "\n".join(lines[token.map[0] : token.map[1]])
        elif token.type == "table_close":
            in_table = False
        elif token.type in ("fence", "code_block"):
            yield "code", token.content


def _add_question(builder: _Builder, prose: str, question: Question, words: Mapping[str, str]) -> None:
    builder.flush()
    paragraphs = [text for kind, text in _blocks(prose) if kind == "paragraph"]
    sentences = [one for text in paragraphs for one in _BETWEEN.split(" ".join(text.split())) if one]
    last = max((n for n, one in enumerate(sentences) if one.rstrip("*)").endswith(("?", "？"))), default=-1)
    asked = sentences[last] if sentences else ""
    title, hint, answer = (words[word] for word in ("What do you say?", "Hint", "Answer"))
    room = MOST_WORDS - max(map(count_words, (title, hint, answer)))
    for before in reversed(sentences[max(last - 2, 0) : last]):
        if count_words(_inline(f"{before} {asked}")) <= room:
            asked = f"{before} {asked}"
    said = answer_text(question)
    builder.slides.append(
        Slide(title, (shortened(asked, room),), "", f"{as_html(prose)}<p>{said}</p>", is_quiz=True)
    )
    builder.slides.append(
        Slide(hint, (shortened(question.hint, room),), "", html.escape(question.hint), is_quiz=True)
    )
    number = said.partition("</b>. ")[0] + "</b>" if "</b>. " in said else ""
    reason = shortened(question.because, room - 2)
    points = (number, reason) if number else (reason,)
    builder.slides.append(Slide(answer, points, "", said, is_quiz=True))
    builder.questions.append(shortened(asked, room))


def _add_exercise(builder: _Builder, cell: nbformat.NotebookNode, words: Mapping[str, str]) -> None:
    name = cell.source.split()[1]
    builder.flush()
    before = builder.title
    for output in cell.outputs:
        data = output.get("data", {})
        if task := data.get("text/markdown", ""):
            title, _, text = task.partition("\n")
            builder.title = f"{words['Exercise']}: {shortened(title.strip('* '), 10)}"
            room = MOST_WORDS - count_words(builder.title) - 4
            goal = shortened(text.strip(), room)
            start = f"<code>ladder exercise start {name}</code>"
            builder.slides.append(Slide(builder.title, (goal, start), "", as_html(text), is_quiz=True))
        elif svg := data.get("image/svg+xml", ""):
            builder.show(_picture(svg, builder.title))
    builder.title = before


def _add_outputs(builder: _Builder, cell: nbformat.NotebookNode) -> None:
    if cell.source.startswith("%%cuda"):
        builder.code(_kernel(cell.source), name="CUDA", most=4)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if svg := data.get("image/svg+xml", ""):
            builder.drawing = builder.drawing or _picture(svg, builder.title)
            builder.show(_picture(svg, builder.title))
        elif "<table" in data.get("text/html", ""):
            rows = BeautifulSoup(data["text/html"], "html.parser").find_all("tr")
            cells = [[html.escape(one.get_text()) for one in row.find_all(["th", "td"])] for row in rows]
            builder.table(cells, data["text/html"])
        elif "<pre" in data.get("text/html", ""):
            name = _text(data["text/html"].partition("<pre")[0])
            builder.code(data["text/plain"].splitlines(), name=name)
        elif text := output.get("text", data.get("text/markdown", data.get("text/plain", ""))):
            builder.code(text.splitlines(), most=_MOST_PARTS)


def _kernel(source: str) -> list[str]:
    """The kernels of a program, without what is included and without ``main``."""
    lines = source.split("\n")[1:]
    begin = next((n for n, line in enumerate(lines) if "__global__" in line), 0)
    end = next((n for n, line in enumerate(lines) if line.startswith("int main")), len(lines))
    return lines[begin:end]
