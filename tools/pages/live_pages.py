"""The live pages: rungs and bank conflicts in the browser, as a folder for any static file server.

    python -m tools.pages.live_pages [--into build/site/live]

Needs emscripten (Debian's package of that name). `make site` leaves the pages out where it is missing.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from ladder.common import cache, files
from ladder.common.progress import steps
from ladder.compile import EmulatorTarget
from ladder.counts.banks.access import WIDTHS
from ladder.course.exercises import Exercise, counter_in_english, exercises
from ladder.course.serving import COMPILER_FILE, Kernel
from ladder.operations import AnyProblem, Problem, get_operation
from ladder.run.emulator import ADVICE, COUNTERS, FORMS, MORE_ADVICE, SENTENCES
from ladder.stages import Stage, discover, include_directory
from tools.pages import translations
from tools.pages.live_compiling import modules_of
from tools.pages.live_exercises import (
    cases_of,
    exercise_data,
    kernel_of,
    offered_exercises,
    page_of,
    reason_against,
)
from tools.pages.live_recording import Run, barrier_lines, record_run, recorded, references, with_line

ROOT = Path(__file__).resolve().parents[2]
OFFERED = tuple(map(discover().today, ("v1", "v2", "v3", "v4", "v5", "v7", "v8", "v9", "v10", "v11")))
#: Of examples/.
EXAMPLES = (
    "row_softmax",
    "layer_norm",
    "layer_norm_cluster",
    "norm_gate",
    "norm_gate_backward",
    "rotary_embedding",
    "gemm",
    "linear_attention",
)
SIZES = (64, 100, 128, 256)
HEAD_DIM = 64
#: The rung whose barriers a reader may take out.
_WITHOUT_BARRIERS = discover().today("v1")
#: The page that lists the exercises.
EXERCISES = "exercises"
#: What pages say below their headings.
OF_RUNG = (
    "This page runs the rung on the emulator, in your browser: its compiled kernels, and the launches of its "
    "own host code."
)
OF_EXAMPLE = OF_RUNG.replace("the rung", "the example")
OF_EXERCISE = (
    "This page runs known answers to the exercise on the emulator, in your browser: right ones and wrong "
    "ones. To write your own:"
)
LEFT_OUT = "Problems of the check that are left out here, since they have another head dimension:"
#: The name of the page of accesses, and its examples. A row of their tiles has 128 bytes: d = 64 in f16,
#: or 32 floats.
BANKS = "banks"
_ROWS_OF_K = "(lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16"
PRESETS = (
    {"name": "v2: ldmatrix of K", "op": "ldmatrix", "width": 4, "address": _ROWS_OF_K},
    {
        "name": "v3: the same with its swizzle",
        "op": "ldmatrix",
        "width": 4,
        "address": _ROWS_OF_K,
        "swizzle": "3,4,3",
    },
    {
        "name": "v2: ldmatrix of V",
        "op": "ldmatrix",
        "width": 4,
        "address": "lane % 16 * 128 + lane / 16 * 16",
    },
    {
        "name": "v3: the same with the XOR written out",
        "op": "ldmatrix",
        "width": 4,
        "address": "lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16",
    },
    {"name": "transpose: a column of 32 x 32 floats", "op": "ld", "width": 4, "address": "lane * 128"},
    {"name": "transpose: rows padded by one float", "op": "ld", "width": 4, "address": "lane * 132"},
    {"name": "transpose: an XOR instead", "op": "ld", "width": 4, "address": "lane * 128 + (lane ^ 5) * 4"},
    {"name": "16 bytes per lane, in order", "op": "st", "width": 16, "address": "lane * 16"},
)
_STATIC = (
    *("page.js", "page.css", "worker.js", "editor.js", "elements.js", "judge.js"),
    *("banks.js", "access.js", "expression.js", "words.js"),
)
#: Messages of checks that docs/live/judge.js says as ladder/course/exercises/judge.py and operations do.
LIMITS = (
    "On {on}: right, but more expensive than needed: {count} {what}, at most {most:,}.",
    "On {on}: right, but not what the task says: {value:,} {what}, which has at least {least:,}.",
)
WRONG_ELEMENTS = "{name} is wrong in {n:,} of {count:,} elements."
#: A field's format.
_FORMAT = re.compile(r":,(?=})")
#: The scripts that make a page's data.
_MAKERS = ("pages", "recording", "compiling", "exercises")
MISSING = "the live pages need emscripten; on Debian or Ubuntu: apt-get install emscripten"


class NoEmulator(Exception):
    """The emulator for pages cannot be built: there is no emscripten, or it has failed."""


def build_wasm(target: str, folder: Path) -> None:
    """A target of emulator/wasm, built in the folder. Raises :class:`NoEmulator`."""
    if not shutil.which("emcmake"):
        raise NoEmulator(MISSING)
    # The packages of node that Debian's emscripten calls; another node does not look there.
    environment = {**os.environ, "NODE_PATH": os.environ.get("NODE_PATH", "/usr/share/nodejs")}
    source = ROOT / "emulator" / "wasm"
    configure = ["emcmake", "cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja"]
    build = ["cmake", "--build", str(folder), "--target", target]
    for command in ([*configure, "-DCMAKE_BUILD_TYPE=Release"], build):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise NoEmulator(f"{command[0]} has failed:\n{done.stdout[-4000:]}")


def problems(stage: Stage) -> list[AnyProblem]:
    """What a page offers: a size and a mask each; of an example what ``ladder check`` tries."""
    if stage.name in EXAMPLES:
        known = get_operation(stage.computes).check_problems
        return [stage.accept(one) for one in known if stage.suits(one)]
    return [
        stage.accept(Problem(1, 1, size, size, HEAD_DIM, is_causal=causal))
        for size in SIZES
        for causal in (False, True)
    ]


def rung_data(stage: Stage) -> dict[str, Any]:
    """All that the page of a rung or an example needs, as JSON."""
    offered = problems(stage)
    narrowed, kernel = stage.narrowed(offered), kernel_of_rung(stage)
    runs = [record_run(narrowed, EmulatorTarget(kernel.arch), problem) for problem in offered]
    names = sorted({launch.kernel for run in runs for launch in run.launches})
    text = stage.kernel.read_text(encoding="utf-8")
    lines = barrier_lines(stage) if stage.name == _WITHOUT_BARRIERS else []
    without = [with_line(text, line, "") for line in lines]
    modules: list[dict[str, Any]] = []
    programs: list[dict[str, Any]] = []
    # The rung itself is in a module of its own: its kernels keep their names.
    for texts, changed in (([text], [0]), (without, lines)):
        if texts:
            module, versions = modules_of(texts, "kernel.cu", kernel, names, ["ptx", "debug"])
            programs += [
                {"name": _name_without(line), "without": line, "module": len(modules), **version}
                for line, version in zip(changed, versions, strict=True)
            ]
            modules.append(module)
    return {
        "name": stage.name,
        "arch": kernel.arch,
        "source": {"name": "kernel.cu", "lines": text.splitlines()},
        "modules": modules,
        "programs": programs,
        "problems": [_problem_data(problem, run) for problem, run in zip(offered, runs, strict=True)],
    }


def kernel_of_rung(stage: Stage) -> Kernel:
    """What compiles the rung's kernel for the problems of its page."""
    return Kernel(stage, stage.arch(None), stage.narrowed(problems(stage)).chosen_options({}))


def _name_without(line: int) -> str:
    return f"without the barrier of line {line}" if line else "as it is"


def _problem_data(problem: AnyProblem, run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = {"label": str(problem)}
    if isinstance(problem, Problem):
        facts = {
            "label": f"N = M = {problem.q_len}, {'causal' if problem.is_causal else 'no mask'}",
            "size": problem.q_len,
            "is_causal": problem.is_causal,
        }
    expected = references(problem, run)
    totals = [launch.totals() for launch in run.counted]
    return {**facts, **recorded(run), "totals": totals, "references": expected[:1]}


def write_pages(folder: Path, build: Path) -> list[Path]:
    """Writes the pages of all offered rungs, examples and exercises, and of accesses; returns those of rungs
    and examples. A page whose sources are as they were keeps its data. Raises :class:`NoEmulator`.
    """
    write_banks_page(folder, build)
    build_wasm("emulator", build)
    stages = [discover()[name] for name in (*OFFERED, *EXAMPLES)]
    asked = offered_exercises(OFFERED)
    write_compiler_file(stages, asked, folder)
    shutil.copyfile(build / "emulator.js", folder / "emulator.js")
    _write_compressed(folder / "emulator.wasm.gz", (build / "emulator.wasm").read_bytes())
    shutil.copyfile(ROOT / "ladder" / "course" / "lessons" / "stepper.js", folder / "stepper.js")
    with steps("Recording", len(stages) + len(asked)) as progress:
        for stage in stages:
            with progress.step(stage.name):
                _write_data(stage.name, [stage.path], functools.partial(rung_data, stage), folder)
        for one in asked:
            with progress.step(one.name):
                sources = [one.folder] if one.rung is None else [one.folder, one.stage().path]
                _write_data(page_of(one), sources, functools.partial(exercise_data, one), folder)
    for one in asked:
        _write_exercise_page(one, folder)
    _write_exercise_list(folder)
    return [_write_rung_page(stage, folder) for stage in stages]


def write_compiler_file(stages: Iterable[Stage], asked: Iterable[Exercise], folder: Path) -> None:
    """Writes what the kernels are compiled with, for ``ladder serve``; other servers have no compiler."""
    kernels = {one.name: kernel_of_rung(one) for one in stages}
    kernels |= {page_of(one): kernel_of(one) for one in asked}
    facts = {
        name: {"rung": one.stage and one.stage.name, "arch": one.arch, "options": one.options}
        for name, one in kernels.items()
    }
    text = json.dumps({"is_here": False, "kernels": facts})
    (folder / COMPILER_FILE).write_text(text, encoding="utf-8")


def write_banks_page(folder: Path, build: Path) -> Path:
    """Writes the page of accesses and the scripts of all pages. Raises :class:`NoEmulator`."""
    build_wasm("bank_model", build)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build / "bank_model.js", folder / "bank_model.js")
    for name in _STATIC:
        shutil.copyfile(ROOT / "docs" / "live" / name, folder / name)
    widths = {op: list(offered) for op, offered in WIDTHS.items()}
    data = json.dumps({"widths": widths, "presets": PRESETS})
    for language in translations.LANGUAGES:
        write_messages(folder, language)
        _write_from_template("banks.html", folder, BANKS, language, data=data)
    return _write_from_template("banks.html", folder, BANKS, data=data)


def _write_data(name: str, sources: Sequence[Path], make: Callable[[], dict[str, Any]], folder: Path) -> None:
    path, beside = folder / f"{name}.json.gz", folder / f".{name}.digest"
    own = [Path(__file__).with_name(f"live_{one}.py") for one in _MAKERS]
    every = [*sources, include_directory(), ROOT / "emulator"]
    made_from = sorted([*own, *(one for source in every for one in files.walk(source))])
    digest = cache.digest(part for one in made_from for part in (one.name, one.read_bytes()))
    if path.is_file() and beside.is_file() and beside.read_text() == digest:
        return
    _write_compressed(path, json.dumps(make(), separators=(",", ":")).encode())
    beside.write_text(digest)


def _write_compressed(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _write_rung_page(stage: Stage, folder: Path) -> Path:
    is_rung = stage.name in OFFERED
    facts = f"d = {HEAD_DIM}, one head, {stage.dtypes[0]}." if is_rung else f"{stage.dtypes[0]}."
    asked = [one for one in offered_exercises(OFFERED) if one.rung == stage.name]
    for language in ("", *translations.LANGUAGES):
        translate = _translator(language)
        title = translations.translated_label(stage.title, translate)
        idea = translations.translated_label(stage.idea.rstrip("."), translate)
        about = OF_RUNG if is_rung else OF_EXAMPLE
        intro = f"<span>{html.escape(idea)}.</span> <span>{about}</span> <span>{facts}</span>"
        links = ", ".join(_link(page_of(one), translate(one.title), language) for one in asked)
        if asked:
            intro += f"</p>\n<p><span>Exercises:</span> {links}"
        heading = f"{stage.name}: {html.escape(title)}"
        _write_from_template("page.html", folder, stage.name, language, heading=heading, intro=intro)
    return folder / f"{stage.name}.html"


def _write_exercise_page(exercise: Exercise, folder: Path) -> None:
    intro = f"<span>{OF_EXERCISE}</span> <code>ladder exercise start {exercise.name}</code>"
    left_out = len(exercise.cases) - len(cases_of(exercise)) if exercise.rung else 0
    if left_out:
        intro += f"</p>\n<p><span>{LEFT_OUT}</span> {left_out}"
    for language in ("", *translations.LANGUAGES):
        heading = f"{exercise.name}: {html.escape(_translator(language)(exercise.title))}"
        _write_from_template("page.html", folder, page_of(exercise), language, heading=heading, intro=intro)


def _write_exercise_list(folder: Path) -> None:
    """The page that lists all exercises: links to those that are offered, and why others are not."""
    for language in ("", *translations.LANGUAGES):
        rows = []
        reasons: dict[str, list[str]] = {}
        for one in exercises():
            if reason := reason_against(one, OFFERED):
                reasons.setdefault(reason, []).append(one.name)
                continue
            title = html.escape(_translator(language)(one.title))
            rows.append(f"<tr><td>{_link(page_of(one), one.name, language)}</td><td>{title}</td></tr>")
        absent = [
            f"<li><span>{html.escape(reason)}</span>: <code>{' '.join(names)}</code></li>"
            for reason, names in reasons.items()
        ]
        facts = {"rows": "\n".join(rows), "absent": "\n".join(absent)}
        _write_from_template("exercises.html", folder, EXERCISES, language, **facts)


def _link(name: str, text: str, language: str) -> str:
    return f'<a href="{_folder_of(language)}{name}.html">{html.escape(text)}</a>'


@functools.cache
def _translator(language: str) -> translations.Translate:
    return translations.translator(language) if language else str


def _write_from_template(template: str, folder: Path, name: str, language: str = "", **facts: object) -> Path:
    """Writes a page of docs/live with links to all others, and to itself in the other languages.

    A page in another language than English is the same one, which says its words with docs/live/words.js.
    """
    own = _folder_of(language)
    links = [
        f"<b>{one}</b>" if one == name else f'<a href="{own}{one}.html">{one}</a>'
        for one in (*OFFERED, *EXAMPLES, EXERCISES, BANKS)
    ]
    names = {"": "English", "zh-CN": "中文"}
    links += [
        f'<a href="{_folder_of(other)}{name}.html">{names[other]}</a>' for other in names if other != language
    ]
    template_text = (ROOT / "docs" / "live" / template).read_text(encoding="utf-8")
    text = Template(template_text).substitute(facts, name=name, links=" ".join(links))
    if language:
        text = text.replace('<html lang="en">', f'<html lang="{language}">', 1)
        # Files and links are named from the English pages' folder.
        text = text.replace('<meta charset="utf-8">', '<meta charset="utf-8">\n<base href="../">', 1)
        words = json.dumps(words_of_page(name, language), ensure_ascii=False).replace("</", "<\\/")
        table = f'<script type="application/json" id="words">{words}</script>'
        script = '<script type="module" src="words.js"></script>'
        text = text.replace('<script type="module"', f'{table}\n{script}\n<script type="module"', 1)
    path = folder / own / f"{name}.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _folder_of(language: str) -> str:
    """Where a language's pages lie, from the English ones."""
    return f"{language.replace('-', '_')}/" if language else ""


def words_of_page(name: str, language: str) -> dict[str, str]:
    """What a page says in another language: the words of all pages, and those of its exercise."""
    path = ROOT / "docs" / "live" / f"{language}.json"
    words: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    found = next((one for one in exercises() if page_of(one) == name), None)
    if found is not None:
        said = [*translations.messages(f"exercises/{found.name}/exercise.toml")]
        reasons = [*(one.reason for one in found.cases), *(one.reason for one in found.runs)]
        said += [reason for reason in reasons if reason]
        translate = _translator(language)
        words |= {" ".join(message.split()): translate(message) for message in said}
    return words


def write_messages(folder: Path, language: str) -> None:
    """Writes what the emulator and the checks say in both languages, for docs/live/words.js."""
    translate = _translator(language)
    counts = map(counter_in_english, COUNTERS)
    said = (*FORMS, *MORE_ADVICE, *SENTENCES, *ADVICE, *LIMITS, WRONG_ELEMENTS, *counts)
    # Fields without their formats: a page has the figures formatted.
    messages = {_FORMAT.sub("", one): _FORMAT.sub("", translate(one)) for one in said}
    text = json.dumps(messages, ensure_ascii=False)
    (folder / f"messages.{language}.json").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Rungs that run in the browser, as a folder.")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site" / "live", metavar="DIR")
    options = parser.parse_args()
    try:
        pages = write_pages(options.into, ROOT / "build" / "wasm")
    except NoEmulator as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(pages[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
