"""Exercises as live pages: what a page needs of one, and which exercises have a page.

A page offers the known answers of an exercise. They are compiled together, and run with launches that were
recorded: of an exercise on a rung, the rung's own on the exercise's cases; of a program, those of its main.
The check of a page uses what ``ladder exercise check`` uses: the references with their limits, the limits of
counts in exercise.toml, and what the program's own main says of its result.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.common import cache
from ladder.compile import DebugTarget, EmulatorTarget, build_program
from ladder.course.exercises import (
    BLOCK_BARRIERS,
    Exercise,
    exercises,
    fill_gap,
    read_answers,
    solution_text,
    write_working_copy,
)
from ladder.course.exercises.judge import MOST_INSTRUCTIONS
from ladder.course.lessons import changed_copy
from ladder.course.serving import Kernel
from ladder.operations import AnyProblem
from ladder.run.emulator import instruction_limit
from ladder.stages import DEFAULT_ARCH, Stage, read_stage
from tools.pages.live_compiling import modules_of, plain_names, together
from tools.pages.live_recording import (
    Run,
    record_program,
    record_run,
    recorded,
    references,
    references_of_program,
)

#: Why an exercise has no page.
_OTHER_RUNG = "its rung has no live page"
_TILE_LIBRARY = "its lines are in the tile library, and a page shows the counts of kernel.cu"
_BARRIERS = "its check counts barriers, which a page does not"
_HOST = "its lines run on the host"
_SEVERAL_GPUS = "its program launches kernels for several GPUs"
#: Exercises whose gap is in host code. A page repeats recorded launches and does not run the host's code.
_IN_HOST_CODE = ("cuda_streams", "v8_maps")
#: Programs whose host code does more between launches than a page repeats.
_ON_SEVERAL_GPUS = ("r2_bytes", "r2_deadlock", "r2_gradients", "r2_whose_keys")


#: Exercises with a wrong answer that is right for the head dimension of their first cases.
_ALL_HEAD_DIMS = ("v1_kernel", "v2_load_tile", "v2_row_max", "v3_from_v2", "v3_parameters", "v4_loop")


@dataclass(frozen=True)
class Answer:
    """A text for the gap, and the whole file with it."""

    text: str
    source: str


def reason_against(exercise: Exercise, rungs: Sequence[str]) -> str:
    """Why the exercise has no page where these rungs have one; "" if it has."""
    if exercise.name in _IN_HOST_CODE:
        return _HOST
    if exercise.name in _ON_SEVERAL_GPUS:
        return _SEVERAL_GPUS
    if exercise.rung is None:
        return ""
    if exercise.rung not in rungs:
        return _OTHER_RUNG
    if exercise.gap.file != exercise.main_file:
        return _TILE_LIBRARY
    if any(BLOCK_BARRIERS in case.at_most for case in exercise.cases):
        return _BARRIERS
    return ""


def offered_exercises(rungs: Sequence[str]) -> list[Exercise]:
    return [one for one in exercises() if not reason_against(one, rungs)]


def page_of(exercise: Exercise) -> str:
    """The name of its page; a rung may have the name of an exercise."""
    return f"exercise_{exercise.name}"


def answers_of(exercise: Exercise) -> list[Answer]:
    """The starting point, and behind it the known answers, right and wrong ones mixed."""
    known = read_answers(exercise)
    texts = [solution_text(exercise), *(one.text for one in known.wrong), *(one.text for one in known.right)]
    mixed = sorted({text.strip("\n") for text in texts}, key=lambda one: cache.digest([one]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_working_copy(exercise, folder, solved=False)
        found = []
        for text in (exercise.gap.skeleton.strip("\n"), *mixed):
            fill_gap(exercise, folder, text)
            found.append(Answer(text, (folder / exercise.main_file).read_text(encoding="utf-8")))
    return found


def kernel_of(exercise: Exercise) -> Kernel:
    """What compiles the exercise's main file."""
    if exercise.rung is None:
        return Kernel(None, DEFAULT_ARCH, {})
    stage = solved_stage(exercise)
    return Kernel(exercise.stage(), stage.arch(None), stage.chosen_options({}))


def exercise_data(exercise: Exercise) -> dict[str, Any]:
    """All that an exercise's page needs, as JSON."""
    of_kind = _of_program if exercise.rung is None else _of_rung
    answers = answers_of(exercise)
    facts = of_kind(exercise, answers)
    return {
        "name": page_of(exercise),
        "source": {"name": exercise.main_file, "lines": answers[0].source.splitlines()},
        "exercise": {
            "task": exercise.task.strip(),
            "hints": exercise.hints,
            "afterword": exercise.afterword.strip(),
        },
        **facts,
    }


def _programs(answers: Sequence[Answer], versions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers that have the kernels which are launched, and those that do not compile."""
    return [
        {"name": "as it is", "text": answer.text, "lines": answer.source.splitlines(), "module": 0, **version}
        for answer, version in zip(answers, versions, strict=True)
        if {"ptx", "error"} & version.keys()
    ]


# --- exercises on rungs


def cases_of(exercise: Exercise) -> list[AnyProblem]:
    """The problems of a page: those with one head dimension, 64 if there are some, and one dtype. Kernels for
    others are compiled where an answer is right for that one alone.
    """
    problems = [exercise.stage().accept(case.problem) for case in exercise.cases]
    if exercise.name in _ALL_HEAD_DIMS:
        return problems
    kinds = [(getattr(one, "head_dim", None), one.dtype) for one in problems]
    wanted = next((kind for kind in kinds if kind[0] == 64), kinds[0])
    return [one for one, kind in zip(problems, kinds, strict=True) if kind == wanted]


def solved_stage(exercise: Exercise) -> Stage:
    """The rung of the exercise's solution, compiled for the problems of its page alone."""
    stage = exercise.stage()
    if not exercise.solved_by_origin:
        text = exercise.sources(solved=True)[exercise.main_file]
        stage = read_stage(changed_copy(stage, text, "solved"))
    return stage.narrowed(cases_of(exercise))


def _of_rung(exercise: Exercise, answers: Sequence[Answer]) -> dict[str, Any]:
    stage, problems = solved_stage(exercise), cases_of(exercise)
    arch = stage.arch(None)
    runs = [record_run(stage, EmulatorTarget(arch), problem) for problem in problems]
    kernels = sorted({launch.kernel for run in runs for launch in run.launches})
    sources = [answer.source for answer in answers]
    kernel = kernel_of(exercise)
    module, versions = modules_of(sources, exercise.main_file, kernel, kernels, ["ptx"])
    debug, first = modules_of(sources[:1], exercise.main_file, kernel, kernels, ["debug"])
    versions[0] |= first[0]
    cases = [case for case in exercise.cases if exercise.stage().accept(case.problem) in problems]
    return {
        "arch": arch,
        "modules": [{**module, **debug}],
        "programs": _programs(answers, versions),
        "problems": [
            {
                "label": str(case.problem),
                **recorded(run),
                "references": references(problem, run, exact=True),
                "at_most": dict(case.at_most),
                "at_least": dict(case.at_least),
                "reason": case.reason,
            }
            for case, problem, run in zip(cases, problems, runs, strict=True)
        ],
        "left_out": len(exercise.cases) - len(cases),
    }


# --- programs


def _of_program(exercise: Exercise, answers: Sequence[Answer]) -> dict[str, Any]:
    sources = [_returning(answer.source) for answer in answers]
    target = DebugTarget(DEFAULT_ARCH, lines_only=True)
    text = together(sources, exercise.main_file).encode()
    folder = cache.root() / "walks" / cache.digest([text])
    program = cache.made_of(folder, {exercise.main_file: text}) / exercise.main_file
    library = ctypes.CDLL(str(build_program([program], target)))
    tried = [[_call(library, main, run.arguments) for run in exercise.runs] for main in _mains(sources)]
    solution = [answer.text for answer in answers].index(solution_text(exercise).strip("\n"))
    runs = [one[0] for one in tried[solution]]
    kernels = sorted({launch.kernel for run in runs for launch in run.launches})
    module, versions = modules_of(sources, exercise.main_file, kernel_of(exercise), kernels, ["ptx", "debug"])
    programs = _programs(answers, versions)
    for one, of_answer in zip(programs, tried, strict=True):
        one["said"] = [output if returned else "" for _, returned, output in of_answer]
    return {
        "arch": DEFAULT_ARCH,
        "identifiers": {one: plain_names([one])[0].partition("(")[0] for one in kernels},
        "modules": [module],
        "programs": programs,
        "problems": [
            {
                "label": " ".join([exercise.main_file, *run.arguments]),
                **recorded(own),
                "references": references_of_program(own, answers[0].source),
                "at_most": dict(run.at_most),
                "at_least": {},
                "reason": run.reason,
            }
            for run, own in zip(exercise.runs, runs, strict=True)
        ],
        "left_out": 0,
    }


def _returning(source: str) -> str:
    """The program with a main that returns in any case: only in the global namespace that goes without
    saying.
    """
    return source.rstrip().removesuffix("}") + "  return 0;\n}\n"


def _mains(sources: Sequence[str]) -> list[str]:
    """The names of the mains in a library of these versions."""
    names = [f"version_{number}" for number in range(len(sources))]
    return [f"_ZN{len(name)}{name}4mainEiPPc" for name in names]


def _call(library: ctypes.CDLL, main: str, arguments: Sequence[str]) -> tuple[Run, int, str]:
    """Calls a main: its launches, what it has returned and printed."""
    words = [os.fsencode(word) for word in ("program", *arguments)]
    system = ctypes.CDLL(None)
    system.srand(1)  # as in a process of its own
    with _printed() as printed, instruction_limit(MOST_INSTRUCTIONS):
        run, code = record_program(
            lambda: int(library[main](len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)))
        )
        system.fflush(None)
    return run, code, printed[0].strip()


@contextmanager
def _printed() -> Iterator[list[str]]:
    """Collects what C code prints, as the list's only text at the end."""
    texts: list[str] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield texts
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
