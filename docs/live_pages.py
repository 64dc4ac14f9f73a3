"""The live pages: rungs and bank conflicts in the browser, as a folder for any static file server.

    python docs/live_pages.py [--into build/site/live]

Needs emscripten (Debian's package of that name). `make site` leaves the pages out where it is missing.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import torch
import translations
from live_recording import Run, barrier_lines, debugging_tables, record_run, with_line

from ladder.banks.access import WIDTHS
from ladder.build import DebugTarget, EmulatorTarget
from ladder.common import cache, files
from ladder.common.progress import steps
from ladder.exercises import Exercise, get_exercise, read_answers, solution_text
from ladder.operations import Problem, operation_of
from ladder.serving import COMPILER_FILE, without_folders
from ladder.stages import Stage, discover

ROOT = Path(__file__).resolve().parent.parent
OFFERED = (
    "v1_minimal",
    "v2_warp_mma",
    "v3_swizzle",
    "v4_tk_tiles",
    "v5_async",
    "v7_wgmma",
    "v8_tma",
    "v9_roles",
    "v10_pingpong",
    "v11_persistent",
)
SIZES = (64, 100, 128, 256)
HEAD_DIM = 64
#: The rung whose barriers a reader may take out.
_WITHOUT_BARRIERS = "v1_minimal"
#: By rung: the exercise that its page asks. The gap is one line, so that the others keep their numbers.
_EXERCISES = {"v1_minimal": "v1_rescale"}
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
    *("page.js", "page.css", "worker.js", "editor.js", "elements.js"),
    *("banks.js", "access.js", "expression.js", "words.js"),
)
#: nvcc puts a hash of the source's path and of its text into the name of what is in an anonymous namespace.
_HASH = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_(\d+_\w+?)_[0-9a-f]{8}")


MISSING = "the live pages need emscripten; on Debian or Ubuntu: apt-get install emscripten"


class MissingEmscripten(Exception):
    """There is no emcmake here."""


def build_wasm(target: str, folder: Path) -> None:
    """A target of emulator/wasm, built in the folder. Raises :class:`MissingEmscripten`."""
    if not shutil.which("emcmake"):
        raise MissingEmscripten
    # The packages of node that Debian's emscripten calls; another node does not look there.
    environment = {**os.environ, "NODE_PATH": os.environ.get("NODE_PATH", "/usr/share/nodejs")}
    source = ROOT / "emulator" / "wasm"
    configure = ["emcmake", "cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (configure, ["cmake", "--build", folder, "--target", target]):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} has failed:\n{done.stdout[-4000:]}")


def problems(stage: Stage) -> list[Problem]:
    """What a page offers: a size and a mask each."""
    return [
        stage.accept(Problem(1, 1, size, size, HEAD_DIM, is_causal=causal))
        for size in SIZES
        for causal in (False, True)
    ]


def page_data(stage: Stage) -> dict[str, Any]:
    """All that a rung's page needs, as JSON."""
    offered = problems(stage)
    narrowed = stage.narrowed(offered)
    target = EmulatorTarget(stage.arch(None))
    runs = [record_run(narrowed, target, problem) for problem in offered]
    kernels = sorted({launch.kernel for run in runs for launch in run.launches})
    programs = [_program("as it is", narrowed, offered, kernels)]
    for line in barrier_lines(stage) if stage.name == _WITHOUT_BARRIERS else ():
        changed = _program(
            f"without the barrier of line {line}", with_line(narrowed, line, ""), offered, kernels
        )
        programs.append({**changed, "without": line})
    text = stage.kernel.read_text(encoding="utf-8")
    asked = _EXERCISES.get(stage.name)
    return {
        "exercise": _exercise(get_exercise(asked), narrowed, offered, kernels) if asked else None,
        "rung": stage.name,
        "arch": target.arch,
        "source": {"name": "kernel.cu", "lines": text.splitlines()},
        "programs": programs,
        "problems": [_problem_data(problem, run) for problem, run in zip(offered, runs, strict=True)],
    }


def _program(name: str, stage: Stage, offered: Sequence[Problem], kernels: Iterable[str]) -> dict[str, Any]:
    """A rung's module, as it is counted and as it is stepped through."""
    arch = stage.arch(None)
    ptx = record_run(stage, EmulatorTarget(arch), offered[0]).ptx
    # The kernels of a size are those of the others; its two masks may have one each.
    debugged = [record_run(stage, DebugTarget(arch), problem) for problem in offered[:2]]
    tables = {
        kernel: debugging_tables(run.ptx, rows)
        for run in debugged
        for kernel, rows in run.instructions.items()
    }
    debug = {**_module(debugged[0].ptx, kernels), "tables": tables}
    return {"name": name, "without": 0, **_module(ptx, kernels), "debug": debug}


def _exercise(
    exercise: Exercise, stage: Stage, offered: Sequence[Problem], kernels: Iterable[str]
) -> dict[str, Any]:
    """An exercise of the rung: its texts, and each known answer compiled, right and wrong ones mixed."""
    solution, known = solution_text(exercise).strip(), read_answers(exercise)
    texts = [solution, exercise.gap.skeleton, *(one.text for one in known.wrong)]
    texts += [one.text for one in known.right]
    lines = [one.strip() for one in stage.kernel.read_text(encoding="utf-8").splitlines()]
    line = lines.index(solution) + 1
    target = EmulatorTarget(stage.arch(None))
    answers = []
    for text in sorted(map(str.strip, texts), key=lambda one: cache.digest([one])):
        run = record_run(with_line(stage, line, text), target, offered[0], may_fail=True)
        answers.append({"text": text, **_module(run.ptx, kernels)})
    return {
        "name": exercise.name,
        "title": exercise.title,
        "task": exercise.task.strip(),
        "hints": exercise.hints,
        "afterword": exercise.afterword.strip(),
        "line": line,
        "skeleton": exercise.gap.skeleton.strip(),
        "answers": answers,
    }


def _module(ptx: str, kernels: Iterable[str]) -> dict[str, Any]:
    """A PTX text, with the names that it has for the kernels of the recorded launches."""
    own = {_HASH.sub(r"\1", entry): entry for entry in re.findall(r"\.entry\s+(\w+)", ptx)}
    return {
        "ptx": without_folders(ptx),
        "kernels": {kernel: own[_HASH.sub(r"\1", kernel)] for kernel in kernels},
    }


def _problem_data(problem: Problem, run: Run) -> dict[str, Any]:
    reference = _reference(problem)
    return {
        "label": f"N = M = {problem.q_len}, {'causal' if problem.is_causal else 'no mask'}",
        "size": problem.q_len,
        "is_causal": problem.is_causal,
        "buffers": [{**asdict(one), "data": _base64(one.data)} for one in run.buffers],
        "launches": [{**asdict(one), "arguments": _base64(one.arguments)} for one in run.launches],
        "totals": [launch.totals() for launch in run.counted],
        "reference": {"output": "o", "dtype": problem.dtype, "data": _base64(reference)},
    }


def _reference(problem: Problem) -> bytes:
    """o in float64, rounded to float32."""
    inputs = operation_of(problem).make_inputs(problem)
    q, k, v = (inputs[name].double() for name in "qkv")
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=problem.is_causal)
    return o.float().contiguous().numpy().tobytes()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_pages(folder: Path, build: Path) -> list[Path]:
    """Writes the pages of all offered rungs and of accesses; returns those of the rungs. A rung whose sources
    are as they were keeps its data. Raises :class:`MissingEmscripten`.
    """
    write_banks_page(folder, build)
    build_wasm("emulator", build)
    stages = [discover()[name] for name in OFFERED]
    write_compiler_file(stages, folder)
    shutil.copyfile(build / "emulator.js", folder / "emulator.js")
    _write_compressed(folder / "emulator.wasm.gz", (build / "emulator.wasm").read_bytes())
    shutil.copyfile(ROOT / "ladder" / "lessons" / "stepper.js", folder / "stepper.js")
    with steps("Recording", len(stages)) as progress:
        for stage in stages:
            with progress.step(stage.name):
                _write_data(stage, folder)
    return [_write_page(stage, folder) for stage in stages]


def write_compiler_file(stages: Iterable[Stage], folder: Path) -> None:
    """Writes what the rungs are compiled with, for ``ladder serve``; other servers have no compiler."""
    rungs = {
        one.name: {"arch": one.arch(None), "options": one.narrowed(problems(one)).chosen_options({})}
        for one in stages
    }
    text = json.dumps({"is_here": False, "rungs": rungs})
    (folder / COMPILER_FILE).write_text(text, encoding="utf-8")


def write_banks_page(folder: Path, build: Path) -> Path:
    """Writes the page of accesses and the scripts of all pages. Raises :class:`MissingEmscripten`."""
    build_wasm("bank_model", build)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build / "bank_model.js", folder / "bank_model.js")
    for name in _STATIC:
        shutil.copyfile(ROOT / "docs" / "live" / name, folder / name)
    widths = {op: list(offered) for op, offered in WIDTHS.items()}
    data = json.dumps({"widths": widths, "presets": PRESETS})
    for language in translations.LANGUAGES:
        _write_from_template("banks.html", folder, BANKS, language, data=data)
    return _write_from_template("banks.html", folder, BANKS, data=data)


def _write_data(stage: Stage, folder: Path) -> None:
    path, beside = folder / f"{stage.name}.json.gz", folder / f".{stage.name}.digest"
    makers = (Path(__file__), Path(__file__).with_name("live_recording.py"))
    sources = [stage.path, stage.path.parent / "include", ROOT / "emulator"]
    if stage.name in _EXERCISES:
        sources.append(get_exercise(_EXERCISES[stage.name]).folder)
    made_from = sorted([*makers, *(one for source in sources for one in files.walk(source))])
    digest = cache.digest(part for one in made_from for part in (one.name, one.read_bytes()))
    if path.is_file() and beside.is_file() and beside.read_text() == digest:
        return
    _write_compressed(path, json.dumps(page_data(stage), separators=(",", ":")).encode())
    beside.write_text(digest)


def _write_compressed(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _write_page(stage: Stage, folder: Path) -> Path:
    facts: dict[str, Any] = {"rung": stage.name, "head_dim": HEAD_DIM, "dtype": stage.dtypes[0]}
    words = {"title": stage.title, "idea": stage.idea.rstrip(".")}
    for language in translations.LANGUAGES:
        translate = translations.translator(language)
        here = {name: translations.translated_label(text, translate) for name, text in words.items()}
        _write_from_template("page.html", folder, stage.name, language, **facts, **here)
    return _write_from_template("page.html", folder, stage.name, **facts, **words)


def _write_from_template(template: str, folder: Path, name: str, language: str = "", **facts: object) -> Path:
    """Writes a page of docs/live with links to all others, and to itself in the other languages.

    A page in another language than English is the same one, which says its words with docs/live/words.js.
    """
    own = _folder_of(language)
    links = [
        f"<b>{one}</b>" if one == name else f'<a href="{own}{one}.html">{one}</a>'
        for one in (*OFFERED, BANKS)
    ]
    names = {"": "English", "zh-CN": "中文"}
    links += [
        f'<a href="{_folder_of(other)}{name}.html">{names[other]}</a>' for other in names if other != language
    ]
    template_text = (ROOT / "docs" / "live" / template).read_text(encoding="utf-8")
    text = Template(template_text).substitute(facts, links=" ".join(links))
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
    if name in _EXERCISES:
        translate = translations.translator(language)
        source = f"exercises/{_EXERCISES[name]}/exercise.toml"
        words |= {message: translate(message) for message in translations.messages(source)}
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description="Rungs that run in the browser, as a folder.")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site" / "live", metavar="DIR")
    options = parser.parse_args()
    try:
        pages = write_pages(options.into, ROOT / "build" / "wasm")
    except MissingEmscripten:
        print(
            "error: emscripten is not here; on Debian or Ubuntu: apt-get install emscripten", file=sys.stderr
        )
        return 2
    print(pages[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
