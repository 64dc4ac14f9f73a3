"""The lessons as committed: scripts and notebooks agree, their outputs can be published, and none contains
the answer to a question or an exercise that its reader has yet to find.

nbmake tests that they run from top to bottom (notebooks/conftest.py).
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ladder.course import lessons
from ladder.course.exercises import BEGIN, END, Exercise, exercises, solution_text
from ladder.course.lessons import magics
from ladder.course.lessons.questions import QUESTIONS
from ladder.stages import discover

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

jupytext = pytest.importorskip("jupytext")

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: jupytext's words for the scripts.
SCRIPT = {
    "extension": ".py",
    "format_name": "percent",
    "custom_cell_magics": PROJECT["tool"]["jupytext"]["custom_cell_magics"],
}
#: In the order of the course, that is of the list in notebooks/README.md.
LESSONS = [
    ROOT / "notebooks" / name
    for name in re.findall(
        r"\((\w+\.ipynb)\)", (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    )
]
#: Paths of a machine, and signs of errors and warnings.
_MACHINE = re.compile(
    r"(?<![\w.])/(home|root|tmp|usr|opt|work|Users|content|var)/|site-packages|Traceback|Warning:"
)
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def cells(path: Path) -> list[tuple[str, str]]:
    words = SCRIPT if path.suffix == ".py" else None
    return [(cell.cell_type, cell.source.rstrip()) for cell in jupytext.read(path, fmt=words).cells]


def code(path: Path) -> str:
    return "\n".join(source for kind, source in cells(path) if kind == "code")


def outputs(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def texts(output: dict[str, Any]) -> str:
    kinds = output.get("data", {"text/plain": output.get("text", "")})
    return "\n".join("".join(text) for kind, text in kinds.items() if kind.startswith("text/"))


def rung_of(path: Path) -> str:
    return path.stem.partition("_")[2]


def lessons_of_rungs() -> dict[str, int]:
    """The place in the course of each rung's lesson, by the list in notebooks/README.md."""
    listed = (LESSONS[0].parent / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [row for row in listed if row.startswith("| [")]
    numbers = ((number, place) for place, row in enumerate(rows) for number in re.findall(r"`(\w+)`", row))
    own = {stage.number: stage.name for stage in discover() if stage.is_own}
    return {own[number]: place for number, place in numbers if number in own}


def test_the_list_of_lessons_names_them_all() -> None:
    folder = ROOT / "notebooks"
    assert sorted(LESSONS) == sorted(folder.glob("*.ipynb"))
    assert sorted(path.stem for path in folder.glob("[0-9]*.py")) == sorted(path.stem for path in LESSONS)


def test_lessons_of_rungs_are_of_rungs_that_are_there() -> None:
    """Each rung has a lesson. The lessons of an operation come in the order of its rungs."""
    places = lessons_of_rungs()
    own = [stage for stage in discover() if stage.is_own]
    assert set(places) == {stage.name for stage in own}
    for operation in ("attention", "attention_backward", "hstu_backward"):
        order = [places[stage.name] for stage in own if stage.computes == operation and stage.name in places]
        assert order == sorted(order), operation


def test_lessons_are_numbered_without_holes() -> None:
    numbers = [int(re.match(r"\d+", path.stem)[0]) for path in LESSONS]  # type: ignore[index]
    assert sorted(set(numbers)) == list(range(max(numbers) + 1))


def test_each_lesson_leads_to_the_next() -> None:
    for path, following in itertools.pairwise(LESSONS):
        last = cells(path)[-1][1]
        assert f"({following.name})" in last, path.stem


@each_lesson
def test_script_and_notebook_agree(path: Path) -> None:
    assert cells(path) == cells(path.with_suffix(".py"))


@each_lesson
def test_outputs_are_kept_and_clean(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert all(cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    found = outputs(path)
    assert found and [output for output in found if output["output_type"] == "error"] == []
    assert [output for output in found if output.get("name") == "stderr"] == []
    assert [text for text in map(texts, found) if _MACHINE.search(text)] == []


def programs(path: Path) -> list[tuple[str, str, str]]:
    """The options, the program and the kept output of each cell ``%%cuda``."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = [
        ("".join(cell["source"]), "".join(map(texts, cell.get("outputs", [])))) for cell in notebook["cells"]
    ]
    lines = [(source.partition("\n"), kept) for source, kept in found if source.startswith("%%cuda")]
    return [(first.removeprefix("%%cuda"), text, kept) for (first, _, text), kept in lines]


PROGRAMS = [(path, number) for path in LESSONS for number in range(len(programs(path)))]


@pytest.mark.parametrize(("path", "number"), PROGRAMS, ids=[f"{path.stem}-{n}" for path, n in PROGRAMS])
def test_a_program_prints_what_is_kept(path: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Every cell ``%%cuda`` compiles, runs, and prints its kept output: counts and sums, no times."""
    options, text, kept = programs(path)[number]
    magics.run_program(options, text)
    assert capsys.readouterr().out.split("\n") == kept.split("\n")


@each_lesson
def test_drawings_say_what_they_show(path: Path) -> None:
    """To readers who do not see them."""
    drawings = ["".join(found["data"]["image/svg+xml"]) for found in drawn(path)]
    assert [drawing[:200] for drawing in drawings if not re.search(r"<title>[^<]+</title>", drawing)] == []


def drawn(path: Path) -> list[dict[str, Any]]:
    """The outputs that have a drawing."""
    return [output for output in outputs(path) if "image/svg+xml" in output.get("data", {})]


def tables_of_results(path: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """The cells that end with a table of results/, each with what it shows today."""
    known: dict[str, Any] = {"lessons": lessons}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "%" in source:
            continue
        *_, last = body = ast.parse(source).body
        for line in body:
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.List):
                exec(ast.unparse(line), known)
        if re.match(r"lessons\.(measured\w*|busy)\(", ast.unparse(last)):
            yield cell, eval(ast.unparse(last), known)


def test_tables_of_results_show_the_results_of_today() -> None:
    """Whoever measures again also runs the lessons again."""
    looked_at = 0
    for path in LESSONS:
        for cell, shown in tables_of_results(path):
            [kept] = cell["outputs"]
            figures = [
                re.findall(r"<t[dh][^>]*>([^<]*)<", text)
                for text in ("".join(kept["data"]["text/html"]), shown.to_html())
            ]
            assert figures[0] == figures[1], (path.stem, "".join(cell["source"]))
            looked_at += 1
    assert looked_at > 30


@each_lesson
def test_predictions_are_left_to_the_reader(path: Path) -> None:
    asked = re.findall(r'^(\w+) = None\nlessons\.predict\("(\w+)", (\w+)\)', code(path), re.MULTILINE)
    assert len(asked) == code(path).count("lessons.predict(") >= 1
    assert all(variable == given for variable, _, given in asked)
    names = [name for _, name, _ in asked]
    assert set(names) <= set(QUESTIONS)
    # Cells that reveal an answer follow its question.
    for name in re.findall(r'lessons\.after\("(\w+)"', code(path)):
        assert name in names
    assert sum("**Your turn.**" in texts(output) for output in outputs(path)) == len(asked)
    shown = sum("Predict first" in texts(output) for output in outputs(path))
    assert shown == code(path).count("lessons.after(")


def test_every_question_is_asked_once() -> None:
    asked = [name for path in LESSONS for name in re.findall(r'lessons\.predict\("(\w+)"', code(path))]
    assert sorted(asked) == sorted(QUESTIONS)


#: Questions whose answers are numbers that cannot appear by chance.
_LARGE = {"sectors_written", "wavefronts_of_v3", "stores_of_v4", "mma_of_v3"}


@pytest.mark.parametrize("name", sorted(_LARGE))
def test_large_answers_stand_nowhere_below_their_question(name: str) -> None:
    answer = f"{QUESTIONS[name].measure():,}"
    [path] = [path for path in LESSONS if f'lessons.predict("{name}"' in code(path)]
    kept = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = ["\n".join(["".join(cell["source"]), *map(texts, cell.get("outputs", []))]) for cell in kept]
    below = next(place for place, text in enumerate(shown) if f'lessons.predict("{name}"' in text)
    assert len(answer) >= 3
    assert [text for text in shown[below:] if re.search(rf"(?<![\d,.]){answer}(?![\d,])", text)] == []


def gap_lines(exercise: Exercise) -> list[str]:
    """The solution's lines that occur once in the rung's file, neither in the skeleton nor in a rung before
    it.
    """
    lines = [line.strip() for line in exercise.sources(solved=True)[exercise.gap.file].splitlines()]
    begin = next(place for place, line in enumerate(lines) if line.startswith(BEGIN))
    end = next(place for place, line in enumerate(lines) if line.startswith(END))
    code_lines = (line.partition("//")[0].strip() for line in lines[begin + 1 : end])
    text = "\n".join(lines)
    known = exercise.gap.skeleton + texts_before(exercise.rung or "", exercise.gap.file)
    return [line for line in code_lines if len(line) > 3 and text.count(line) == 1 and line not in known]


@functools.cache
def texts_before(rung: str, file: str) -> str:
    """This file of all rungs that lessons show before this one."""
    order = [*lessons_of_rungs()]
    before = order[: order.index(rung)]
    ladder = discover()
    sources = [ladder[other].source(file) for other in before]
    return "\n".join(source.read_text(encoding="utf-8") for source in sources if source.is_file())


def test_no_lesson_gives_the_answer_to_an_exercise() -> None:
    """No lesson up to that of its rung may; later ones may show solutions of earlier exercises."""
    place = lessons_of_rungs()
    closing = [(one, gap_lines(one)) for one in exercises() if one.closes_lessons and one.rung in place]
    given, looked_for = [], 0
    for number, path in enumerate(LESSONS):
        kept = json.loads(path.read_text(encoding="utf-8"))
        text = "\n".join("".join(cell["source"]) for cell in kept["cells"])
        text += "\n".join(map(texts, outputs(path)))
        for exercise, lines in closing:
            for line in lines if number <= place[exercise.rung] else ():
                looked_for += 1
                given += [(path.stem, exercise.name, line)] if line in text else []
    assert given == [] and looked_for > 100


#: A line of a solution that the lesson explains before it is asked for.
_EXPLAINED = {"cudaDeviceSynchronize();"}


def test_the_first_lesson_gives_none_of_the_answers_to_its_exercises() -> None:
    """Programs are no rungs, so this is about lines that stand neither in a skeleton nor outside the gap."""
    first = LESSONS[0]
    text = "\n".join([code(first), *(source for _, source in cells(first)), *map(texts, outputs(first))])
    asked = re.findall(r"^%exercise (\w+)$", code(first), re.MULTILINE)
    programs = [one for one in exercises() if one.rung is None and not one.is_last]
    assert asked == [one.name for one in programs]
    given, looked_for = [], 0
    for exercise in programs:
        skeleton = {line.strip() for line in exercise.sources(solved=False)["program.cu"].splitlines()}
        for line in solution_text(exercise).splitlines():
            if len(line.strip()) >= 18 and line.strip() not in {*skeleton, *_EXPLAINED}:
                looked_for += 1
                given += [(exercise.name, line)] if line.strip() in text else []
    assert given == [] and looked_for > 40


@each_lesson
def test_a_lesson_knows_the_one_address_of_the_project(path: Path) -> None:
    address = PROJECT["project"]["urls"]["Repository"]
    place = f"{address.removeprefix('https://github.com/')}/blob/main/notebooks/{path.name}"
    assert f"https://colab.research.google.com/github/{place}" in cells(path)[-1][1]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    [install] = [cell for cell in notebook["cells"] if "colab" in cell["metadata"].get("tags", [])]
    source = "".join(install["source"])
    assert '"--only-binary=flash-ladder", "flash-ladder"' in source
    assert f'"flash-ladder @ git+{address}"' in source
    # Collapsed in JupyterLab, omitted from the site.
    assert install["metadata"] == {"jupyter": {"source_hidden": True}, "tags": ["colab", "remove-cell"]}
