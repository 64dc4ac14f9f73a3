"""Lessons as slides: what begins one, what a slide may hold, and pages that load nothing."""

from __future__ import annotations

import base64
import importlib.util
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from browser import Browser, chromium, served
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from ladder.course.lessons.predictions import PREDICT_FIRST
from ladder.course.lessons.questions import QUESTIONS
from tools.pages import decks, slides

LESSONS = sorted((slides.ROOT / "notebooks").glob("*.ipynb"))
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>a square</title><rect/></svg>'


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are numbers of seven digits, without a measurement."""
    for module in (decks, slides):
        monkeypatch.setattr(module, "answer_text", lambda question: f"<b>9,999,999</b>. {question.because}")


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    def shown(text: str, kind: str, data: str = "what came out") -> nbformat.NotebookNode:
        return new_code_cell(text, outputs=[new_output("display_data", {kind: data})])

    cells = [
        new_markdown_cell("# Title\n\nFirst sentence. Second [sentence](elsewhere.md)."),
        new_code_cell("import nothing"),
        new_markdown_cell("## Section\n\nprose of length $d$ and `$PATH$`"),
        shown("print(1)", "text/plain"),
        new_markdown_cell("more prose"),
        shown("draw()", "image/svg+xml", SVG),
        new_markdown_cell("## Predict\n\nThere are 8 blocks. With 1000 *elements*: how many idle threads?"),
        new_code_cell('lessons.predict("threads_without_element", answer)'),
        new_markdown_cell("## Last\n\n$$ a = b \\qquad c = d $$"),
    ]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_what_the_slides_of_a_lesson_are(lesson: Path, unmeasured: None) -> None:
    deck = slides.deck_of(lesson)
    found = [(one.title, one.points, re.findall(r"<(pre|img|math)\b", one.figure)) for one in deck.slides]
    question = QUESTIONS["threads_without_element"]
    assert [(title, kinds) for title, _, kinds in found] == [
        ("Title", []),
        ("Section", ["pre"]),
        ("Section", ["img"]),
        ("Predict", []),
        ("What do you say?", []),
        ("Hint", []),
        ("Answer", []),
        ("Last", ["math", "math"]),
    ]
    assert deck.slides[0].points == ("First sentence.",)
    assert deck.slides[0].notes == "<p>First sentence. Second sentence.</p>"
    assert "<math" in found[1][1][0] and "<code>$PATH$</code>" in found[1][1][0]
    assert found[4][1] == ("There are 8 blocks. With 1000 <em>elements</em>: how many idle threads?",)
    assert "<b>9,999,999</b>" in deck.slides[4].notes  # the speaker sees it before the room does
    assert found[6][1][0] == "<b>9,999,999</b>" and deck.slides[6].notes.endswith(question.because)


def test_a_program_is_shown_by_its_kernel_eight_lines_a_slide() -> None:
    body = [f"  x[{n}] = {n};" for n in range(9)]
    source = ["%%cuda --check", "#include <cstdio>", "__global__ void f() {", *body, "}", "", "int main() {}"]
    cell = new_code_cell("\n".join(source), outputs=[new_output("stream", text="42")])
    deck = decks.deck(new_notebook(cells=[new_markdown_cell("# T"), cell]), slides.words_of("en"), {})
    code = [[*filter(None, _text(one.figure).splitlines())] for one in deck.slides if "<pre" in one.figure]
    assert [len(lines) for lines in code] == [1 + 5, 1 + 6, 1]  # with the name of what is shown
    assert code[0][1].strip() == "__global__ void f() {" and code[2] == ["42"]


def _text(page: str) -> str:
    return re.sub(r"<[^>]*>", "", page.replace("</p>", "\n"))


def test_a_sentence_is_cut_only_where_none_is_short_enough() -> None:
    long, short = "one two three four five, six seven eight.", "Nine ten."
    assert decks.shortened(f"{long} {short}", 40) == f"{long} {short}"
    assert decks.shortened(f"{long} {short}", 8) == long
    assert decks.shortened(f"{long} {short}", 5) == short
    assert decks.shortened(long, 6) == "one two three four five …"
    assert decks.count_words("三个字，<b>two words</b> <math><mi>x</mi></math>") == 2 + 1 + 2 + 1


class _Slides(HTMLParser):
    """What each slide of a page shows: words beside code, formulas and pictures, and lines of code."""

    def __init__(self) -> None:
        super().__init__()
        self.slides: list[dict[str, str | int]] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self.slides.append({"text": "", "code": "", "math": 0, "notes": "", "pictures": 0})
        if tag in ("section", "pre", "math", "aside"):
            self.inside.append(tag)
            if tag == "math" and "aside" not in self.inside:
                self.slides[-1]["math"] = int(self.slides[-1]["math"]) + 1
        if tag == "img" and "aside" not in self.inside:
            assert dict(attrs)["alt"], "a picture without words"
            self.slides[-1]["pictures"] = int(self.slides[-1]["pictures"]) + 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("section", "pre", "math", "aside"):
            assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if "section" in self.inside and "math" not in self.inside:
            kind = "notes" if "aside" in self.inside else "code" if "pre" in self.inside else "text"
            self.slides[-1][kind] = str(self.slides[-1][kind]) + data + " " * (kind == "text")


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_slide_has_40_words_and_one_picture_or_8_lines(path: Path, language: str, unmeasured: None) -> None:
    made = slides.deck_of(path, language)
    reader = _Slides()
    reader.feed(slides.deck_page(made, language))
    assert len(reader.slides) == len(made.slides) > 10
    for number, slide in enumerate(reader.slides):
        text = re.sub(r"[\u3400-\u9fff]{1,2}", " w ", str(slide["text"]))
        code = [line for line in str(slide["code"]).splitlines() if line.strip()]
        # A formula is a word; two thirds of Chinese words have two characters.
        figures = (int(slide["pictures"]) > 0) + (len(code) > 0)
        most = decks.MOST_WORDS + (10 if language != "en" else 0)
        assert len(text.split()) <= most and len(code) <= 8 and figures <= 1, (number, slide)
    assert sum(len(str(slide["notes"]).split()) for slide in reader.slides) > 300


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_handout_asks_and_leaves_space(path: Path, unmeasured: None) -> None:
    page = slides.handout_page(slides.deck_of(path))
    assert 3 <= page.count("<li><strong>") <= 5 and 1 <= page.count("My answer") <= 3
    assert page.count("<img") <= 1 and "Space to draw" in page and "@page { size: A4" in page
    assert len(_text(page.partition("<main>")[2]).split()) < 260


def test_pages(lesson: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    reveal = tmp_path / "reveal"
    (reveal / "dist").mkdir(parents=True)
    (reveal / "dist" / "reveal.js").write_text("// the program")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["slides", str(lesson), "--into", str(out), "--reveal", str(reveal)])
    assert slides.main() == 0
    assert capsys.readouterr().out.split() == [str(out / "index.html")]
    page, start = (out / "lesson.html").read_text(), (out / "index.html").read_text()
    assert "what came out" in page and "import nothing" not in page and "print(1)" not in page
    # Nothing comes from the network: the page loads only files beside it.
    assert not re.search(r'(src|href)="(https?:)?//', page + start)
    assert 'src="reveal.js/dist/reveal.js"' in page and (out / "reveal.js" / "dist" / "reveal.js").is_file()
    for name in re.findall(r'href="([^"/]+\.html)"', start):
        assert (out / name).is_file()
    # The answer to a question, as measured, and the question before it.
    key = (out / "answers.html").read_text()
    hint = QUESTIONS["threads_without_element"].hint
    places = [key.index(text) for text in ("1000 <em>elements</em>", "<b>24</b>", hint)]
    assert places == sorted(places) and "Predict" not in key


def test_no_slide_asks_to_run_a_cell() -> None:
    shown, note = (new_output("display_data", {"text/markdown": text}) for text in ("42", PREDICT_FIRST))
    cells = [new_markdown_cell("# T"), new_code_cell('lessons.after("q_row", show)', outputs=[shown, note])]
    deck = decks.deck(new_notebook(cells=cells), slides.words_of("en"), {})
    assert PREDICT_FIRST not in slides.deck_page(deck) and "42" in slides.deck_page(deck)


#: Of each slide: how far it reaches, and text or code that is too small.
_MEASURE = """(() => {
  const wrong = [];
  for (let n = 0; n < Reveal.getTotalSlides(); n++) {
    Reveal.slide(n);
    for (const one of Reveal.getCurrentSlide().querySelectorAll('*')) {
      if (one.closest('aside') || one.closest('math')) continue;
      const box = one.getBoundingClientRect();
      const size = parseFloat(getComputedStyle(one).fontSize);
      const has_text = [...one.childNodes].some(c => c.nodeType == 3 && c.textContent.trim());
      const too_small = has_text && size < (one.closest('pre') ? 18 : 24);
      const is_out = box.bottom > 720.5 || box.right > 1280.5;
      if (is_out || too_small) wrong.push([n, one.tagName, box.bottom, box.right, size]);
    }
  }
  return JSON.stringify(wrong);
})()"""


@pytest.mark.full
@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_every_slide_fits_the_screen_and_every_handout_a_page(
    tmp_path: Path, language: str, unmeasured: None
) -> None:
    chromium()
    if importlib.util.find_spec("sphinx_revealjs") is None:
        pytest.skip("there is no reveal.js")
    out = tmp_path / "slides"
    out.mkdir()
    (out / "reveal.js").symlink_to(slides.reveal_source())
    with served(out) as address:
        browser = Browser(tmp_path / "profile")
        try:
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=1280,
                height=720,
                deviceScaleFactor=1,
                mobile=False,
            )
            for lesson in LESSONS:
                made = slides.deck_of(lesson, language)
                (out / "deck.html").write_text(slides.deck_page(made, language))
                (out / "handout.html").write_text(slides.handout_page(made, language))
                browser.open(f"{address}/deck.html?{lesson.stem}")
                browser.wait_for(f"location.search == '?{lesson.stem}' && window.Reveal && Reveal.isReady()")
                assert browser.value(_MEASURE) == "[]", lesson.stem
                browser.open(f"{address}/handout.html?{lesson.stem}")
                browser.wait_for(f"location.search == '?{lesson.stem}' && document.readyState == 'complete'")
                printed = browser.call("Page.printToPDF", preferCSSPageSize=True)["data"]
                assert pages_of(printed) == 1, lesson.stem
        finally:
            browser.close()


def pages_of(pdf: str) -> int:
    """The pages of a PDF in base 64."""
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf)))
