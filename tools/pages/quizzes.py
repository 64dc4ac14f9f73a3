"""Predictions on pages where no number can be typed, slides and the site: a question, a hint, the answer."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection
from dataclasses import replace

import nbformat
from nbformat.v4 import new_output

from ladder.course.lessons.predictions import PREDICT_FIRST
from ladder.course.lessons.questions import QUESTIONS, Question
from ladder.errors import LadderError

_PREDICTION = re.compile(r'lessons\.predict\("(\w+)"')


def question_of(cell: nbformat.NotebookNode) -> str | None:
    """The name of the question whose prediction this cell judges."""
    found = _PREDICTION.search(cell.source) if cell.cell_type == "code" else None
    return found[1] if found else None


def answer_text(question: Question) -> str:
    """What is measured, in bold, and why, as HTML; the reason alone where a reader's own work is measured."""
    reason = html.escape(question.because)
    try:
        return f"<b>{question.measure():,}</b>".replace(".0<", "<") + f". {reason}"
    except LadderError:
        return reason


def unfold_predictions(
    notebook: nbformat.NotebookNode, hint: str, answer: str, unseen: str, translate: Callable[[str], str]
) -> None:
    """Puts a hint and an answer that unfold, with these words, in place of what a prediction's cell shows.

    Cells that show a measurement after a prediction say ``unseen`` instead. The notebook may be translated
    already; its questions are translated here.
    """
    for cell in notebook.cells:
        if (name := question_of(cell)) is not None:
            english = QUESTIONS[name]
            question = replace(english, hint=translate(english.hint), because=translate(english.because))
            folded = ((hint, html.escape(question.hint)), (answer, answer_text(question)))
            text = "\n".join(
                f'<details class="quiz"><summary>{title}</summary>{body}</details>' for title, body in folded
            )
            cell.metadata.setdefault("tags", []).append("remove-input")
            cell.outputs = [new_output("display_data", {"text/html": text})]
    replace_notes(notebook, unseen, {PREDICT_FIRST, translate(PREDICT_FIRST)})


def replace_notes(
    notebook: nbformat.NotebookNode, text: str, notes: Collection[str] = (PREDICT_FIRST,)
) -> None:
    """Puts ``text``, Markdown, in place of each of ``notes``, requests to predict first; nothing if empty."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kept = [
                output
                for output in cell.outputs
                if output.get("data", {}).get("text/markdown", "").strip() not in notes
            ]
            if text and len(kept) < len(cell.outputs):
                kept.append(new_output("display_data", {"text/markdown": text}))
            cell.outputs = kept
