"""The catalogues of translations, and the pages made from them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import polib
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rungs import named

from tools.pages import translations

PAGE = """\
# The title

A paragraph that
is wrapped, with `code` and [a link](page.md).

- an item
  of two lines
- `only code`

| word | what | number |
| --- | --- | --- |
| `x` | the same | 0.5 |
| the same | word | |

    code that stays
"""
MESSAGES = [
    "The title",
    "A paragraph that is wrapped, with `code` and [a link](page.md).",
    "an item of two lines",
    *("word", "what", "number", "the same", "the same", "word"),
]
#: Code, formulas and addresses, except links to headings of the same page, which are translated.
KEPT = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^#)][^)]*\)")


def test_messages_and_their_places() -> None:
    assert [piece.message for piece in translations.pieces(PAGE)] == MESSAGES
    shouted = translations.translated(PAGE, str.upper)
    assert shouted.split("\n") == [
        "# THE TITLE",
        "",
        "A PARAGRAPH THAT IS WRAPPED, WITH `CODE` AND [A LINK](PAGE.MD).",
        "",
        "- AN ITEM OF TWO LINES",
        "- `only code`",
        "",
        "| WORD | WHAT | NUMBER |",
        "| --- | --- | --- |",
        "| `x` | THE SAME | 0.5 |",
        "| THE SAME | WORD | |",
        "",
        "    code that stays",
        "",
    ]


def test_a_table_that_is_measured_again_needs_no_translation() -> None:
    """Neither its figures nor its date are language."""
    table = "Speed on 2026-11-23:\n\n| | v1 |\n| --- | --- |\n| time | 3.2 us |\n"
    assert [piece.message for piece in translations.pieces(table)] == ["Speed on {date}:", "time"]
    words = {"Speed on {date}:": "{date}：速度", "time": "时间"}
    for date, time in (("2026-11-23", "3.2 us"), ("2027-01-02", "4 ms")):
        text = table.replace("2026-11-23", date).replace("3.2 us", time)
        found = translations.translated(text, words.__getitem__)
        assert found == f"{date}：速度\n\n| | v1 |\n| --- | --- |\n| 时间 | {time} |\n"


def test_a_sentence_that_changes_is_untranslated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# One\n\nTwo words.\n")
    catalogue = translations.updated(polib.POFile(), ["page.md"])
    assert translations.counts(catalogue, "page.md") == (0, 2)
    for entry in catalogue:
        entry.msgstr = entry.msgid.upper()
    page.write_text("# One\n\nThree words.\n")
    catalogue = translations.updated(catalogue, ["page.md"])
    assert {entry.msgid: entry.msgstr for entry in catalogue} == {"One": "ONE", "Three words.": ""}
    assert translations.counts(catalogue, "page.md") == (1, 2)
    # A sentence stays the same if it is wrapped differently.
    page.write_text("# One\n\nThree\nwords.\n")
    assert len(translations.updated(catalogue, ["page.md"])) == 2


def test_a_lesson_is_translated_with_what_it_says_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    said = new_output("execute_result", {"text/markdown": "Your turn.", "text/plain": "Verdict"})
    printed = new_output("stream", text="a count")
    debugged = new_output("stream", text="(ladder) break 7\nbreakpoint 1 at kernel.cu:7 if x\n   7  int y;")
    cells = [
        new_markdown_cell("A question"),
        new_code_cell("print(1)", outputs=[said, printed]),
        new_code_cell("lessons.debug(1)", outputs=[debugged]),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "lesson.ipynb")
    assert list(translations.messages("lesson.ipynb")) == ["A question", "Your turn."]
    words = {text: text.upper() for text in ("A question", "Your turn.")}
    words["breakpoint {number} at {place} if {condition}"] = "{place} 处的断点 {number}，若 {condition}"
    translations.write_lesson("lesson.ipynb", tmp_path / "shouted.ipynb", lambda text: words.get(text, text))
    question, code, debugger = nbformat.read(tmp_path / "shouted.ipynb", as_version=4).cells
    assert question.source == "A QUESTION" and code.source == "print(1)"
    assert code.outputs[0].data == {"text/markdown": "YOUR TURN.", "text/plain": "Verdict"}
    assert code.outputs[1].text == "a count"
    assert debugger.outputs[0].text == "(ladder) break 7\nkernel.cu:7 处的断点 1，若 x\n   7  int y;"


def test_each_form_of_the_debuggers_sentences_is_in_a_lesson() -> None:
    """So that none is left behind in English, or in the catalogue, when the debugger says it otherwise."""
    asked_for: list[str] = []

    def ask(message: str) -> str:
        asked_for.append(message)
        return message

    for lesson in translations.LESSONS:
        for cell in nbformat.read(translations.ROOT / lesson, as_version=4).cells:
            if "lessons.debug(" in cell.source:
                translations.translated_transcript(cell.outputs[0].text, ask)
    assert set(translations.TRANSCRIPT) - set(asked_for) == set()


def test_labels_of_drawings_are_translated_where_they_are() -> None:
    """Figures, names of rungs and code are none; the parts of a title are labels, too."""
    drawing = (
        f"<svg><title>block 1, on one SM; {named('v2')}: 8 conflicts</title><path d='M 0 1'/>"
        f"<text x='1'>{named('v2')}: 8 conflicts</text><text>0.5</text><text>sum += x[0]</text></svg>"
    )
    found = ["block {0}, on one SM", "{0}: {1} conflicts", "{0}: {1} conflicts"]
    assert list(translations.labels(drawing)) == found
    words = {"block {0}, on one SM": "一个 SM 上的 block {0}", "{0}: {1} conflicts": "{0}：{1} <次>"}
    assert translations.translated_drawing(drawing, words.__getitem__) == (
        f"<svg><title>一个 SM 上的 block 1; {named('v2')}：8 &lt;次&gt;</title><path d='M 0 1'/>"
        f"<text x='1'>{named('v2')}：8 &lt;次&gt;</text><text>0.5</text><text>sum += x[0]</text></svg>"
    )


def test_what_the_program_says_is_translated_with_its_fields() -> None:
    """As in gettext's own check of formats: a field that is missing or has another format would be an error
    when the message is shown."""
    said = list(dict.fromkeys(translations.messages(translations.PROGRAM)))
    # A literal in a call, a choice of two, the tables of the emulator and the exercises.
    for message in ("not yet", "threads {which}", "race between warps", "does not compile", "in bits"):
        assert message in said
    field = re.compile(r"\{[^{}]*\}")
    for language in translations.LANGUAGES:
        known = {entry.msgid: entry.msgstr for entry in translations.read_catalogue(language)}
        for message in said:
            translation = known.get(message) or message
            assert sorted(field.findall(translation)) == sorted(field.findall(message)), message


def test_a_translation_keeps_what_is_not_language() -> None:
    """Code, formulas and addresses of a message are those of its translation, too."""
    for language in translations.LANGUAGES:
        for entry in translations.read_catalogue(language).translated_entries():
            assert set(KEPT.findall(entry.msgstr)) == set(KEPT.findall(entry.msgid))


def test_links_of_the_readme_lead_to_translated_headings() -> None:
    """Links to pages that are translated lead to the site, whose headings have the words of that language."""
    for language in translations.LANGUAGES:
        translate = translations.translator(language)
        shown = translations.translated_readme(language, translate)
        site = translations.project.site(language.replace("-", "_"))
        looked_for = 0
        for page, wanted in re.findall(rf"\]\((?:{re.escape(site)}/(\S+)\.html)?#([^)]+)\)", shown):
            text = (translations.ROOT / f"{page or 'README'}.md").read_text(encoding="utf-8")
            found = map(translate, translations.headings(text))
            looked_for += 1
            assert wanted in map(translations.anchor, found), (page, wanted)
        assert looked_for >= 3


def test_an_exercise_s_words_are_translated_but_not_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    (tmp_path / "exercise.toml").write_text(
        'title = "A title"\ntask = "One\\nline.\\n\\nTwo."\nafterword = "Why."\n'
        'hints = ["Think.", "x = y;"]\n[gap]\ngoal = "the rest"\n'
    )
    wanted = ["A title", "the rest", "One line.", "Two.", "Think.", "Why."]
    assert list(translations.messages("exercise.toml")) == wanted


def test_a_task_in_a_lesson_is_translated() -> None:
    task = r"""**The title**

All \*\*b of `c_d` \<N>.

To write: the rest. Then run the cell again."""
    words = {"The title": "T", "All **b of `c_d` <N>.": r"A **b `c_d` <N>", "the rest": "R"}
    shown = translations._translated_task(task, lambda text: words.get(text, text))
    assert shown.split("\n\n")[:2] == ["**T**", r"A \*\*b `c_d` \<N>"]
    assert "R" in shown.split("\n\n")[2]


def test_what_to_write_may_be_a_formula() -> None:
    words = {"The title": "T", "To write: {goal}. Then run the cell again.": "W {goal}"}
    for goal, request in (
        ("1 - T^2", "W 1 - T^2"),
        ("the rest", "To write: the rest. Then run the cell again."),
    ):
        task = f"**The title**\n\nTo write: {goal}. Then run the cell again."
        shown = translations._translated_task(task, lambda text: words.get(text, text))
        assert shown == f"**T**\n\n{request}"
