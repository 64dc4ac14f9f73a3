"""Mutation testing of the verdicts: each mutant is a rung with one change made by machine.

A verdict that passes a mutant is blind to the change. Mutants with the same code as their rung are told
apart; ``equivalent_mutants.toml`` lists the others that compute the same, with the reason.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import ladder
from ladder.common import cache, files
from ladder.common.isolation import ProcessEnded, call
from ladder.common.progress import steps
from ladder.compile import build, emulator_library
from ladder.errors import BuildError, LadderError
from ladder.operations import DTYPES
from ladder.run.backends import EmulatorBackend
from ladder.run.emulator import instruction_limit
from ladder.run.evaluation import default_problem, is_faulty, run_comparison
from ladder.stages import Stage, discover, include_directory, root
from tools.bench import record
from tools.bench.operators import Mutant, is_of_order, library_mutants, mutants, mutants_of
from tools.bench.record import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Mutant", "Outcome", "equivalent", "mutants", "mutants_of", "report"]

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
#: Stops mutants that loop forever; no warp of a correct rung comes near it on the problems tried.
_MOST_INSTRUCTIONS = 20_000_000
#: Stops mutants that write all over reserved memory. Judges of correct rungs use 1.3 GiB at most.
_MEMORY_BYTES = 4 * 2**30
_REPOSITORY = Path(__file__).resolve().parents[2]
#: What judges import, which takes seconds.
_PRELOAD = (__name__, "pandas", "pytest", "torch")
#: Of a rung, so many mutants are judged.
_SAMPLE = 40
#: The head dim that narrow copies of rungs are built for, if the rung takes it.
_HEAD_DIM = 64


def rung_mutants(stage: Stage) -> list[Mutant]:
    """All mutants of a rung: of its kernel.cu and its own headers, and of what the shared headers that it
    includes do to order threads and copies.
    """
    found = []
    for file in _included(stage, "kernel.cu"):
        source = stage.source(file).read_text(encoding="utf-8")
        if (stage.path / file).is_file():
            found += [replace(mutant, file=file) for mutant in mutants(stage.name, source)]
        else:
            found += library_mutants(stage.name, file, source)
    return found


def _included(stage: Stage, first: str) -> list[str]:
    """This file of the stage's and those that it includes, directly or not."""
    found, left = [], [first]
    while left:
        file = left.pop()
        if file in found or not stage.source(file).is_file():
            continue
        found.append(file)
        included = re.findall(
            r'^#include "(.*)"', stage.source(file).read_text(encoding="utf-8"), re.MULTILINE
        )
        left += [str(Path(file).parent / name) for name in included] + included
    return found


def sampled(found: Sequence[Mutant], count: int) -> list[Mutant]:
    """So many mutants, the same each time, as evenly of all kinds as there are; all if it is 0."""
    if not count:
        return list(found)
    kinds: dict[object, list[Mutant]] = defaultdict(list)
    for mutant in random.Random(0).sample(found, len(found)):
        where = "library" if "/" in mutant.file else is_of_order(mutant.old)
        kinds[mutant.kind, where].append(mutant)
    turns = (mutant for turn in zip_longest(*kinds.values()) for mutant in turn if mutant is not None)
    chosen = [mutant for mutant, _ in zip(turns, range(count), strict=False)]
    return sorted(chosen, key=lambda mutant: (mutant.stage, mutant.file, mutant.line))


def equivalent() -> dict[str, str]:
    """The reasons why mutants compute the same as their rung, by name of the mutant."""
    table = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    found, ladder = {}, discover()
    for entry in table["mutant"]:
        of, _, change = entry["name"].partition("-")
        found[f"{ladder.today(of)}-{change}"] = entry["reason"]
    return found


# --- judges, each in a process of its own -------------------------------------------------------------------


def _code(stage: str) -> str:
    """Builds the stage; a digest of its code, host and device."""
    found = discover()[stage]
    extension = build(found, EmulatorBackend().target(found, None), found.chosen_options({}))
    return code_digest(extension.parent / "kernel.o")


def code_digest(binary: Path) -> str:
    """A digest of an object file's PTX and machine code, without line numbers and names of files."""
    ptx = b"".join(re.findall(rb"\.version [^\0]*", binary.read_bytes())).decode()
    device = [
        line for line in ptx.splitlines() if not re.match(r"\s*(\.loc|\.file|//|\$L__tmp|\.b\d+ )", line)
    ]
    command = ["objdump", "-dr", "--no-show-raw-insn", str(binary)]
    host = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[3:]
    text = "\n".join([*device, *host])
    return cache.digest([re.sub(r"(_GLOBAL__N__|_kernel_cu_)[0-9a-f]{8}", r"\1", text)])


def _compare(stage: str) -> bool:
    return not run_comparison(default_problem(stage), [stage], backend="emulator", fresh=True).passed


def _check(stage: str) -> bool:
    return is_faulty(stage)


def _matrix(stage: str) -> bool:
    return _pytest(stage, Path(os.environ["LADDER_STAGES_ROOT"]) / "test_matrix.py")


def _all_tests(stage: str) -> bool:
    return _pytest(stage, Path(os.environ["LADDER_STAGES_ROOT"]))


def _pytest(stage: str, tests: Path) -> bool:
    import pytest

    silence = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    folder = os.environ["LADDER_STAGES_ROOT"]
    words = [
        str(tests),
        "-x",
        "-q",
        "-k",
        stage,
        "-c",
        str(_REPOSITORY / "pyproject.toml"),
        "--rootdir",
        folder,
    ]
    code = pytest.main([*words, "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminalreporter"])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise LadderError(f"pytest ended with {code!r} on a mutant of {stage}")
    return code is pytest.ExitCode.TESTS_FAILED


#: From the quickest to the slowest. The last one alone gets the whole rung, the others a narrow copy.
JUDGES: dict[str, Callable[[str], bool]] = {
    "compare": _compare,
    "check": _check,
    "matrix": _matrix,
    "pytest": _all_tests,
}
_OF_WHOLE = "pytest"
_DEFAULT_JUDGES = ("check", "matrix", "pytest")


def _ask(judge: Callable[[str], Any], stage: str, folder: str) -> Any:
    """Asks a judge about the stage in that folder of stages; runs in a process of its own."""
    os.environ.update(LADDER_STAGES_ROOT=folder, LADDER_SEED="1", LADDER_THREADS="1")
    with instruction_limit(_MOST_INSTRUCTIONS):
        return judge(stage)


# --- one mutant ---------------------------------------------------------------------------------------------


def judge_mutant(mutant: Mutant, judges: Sequence[str], folder: Path) -> Outcome:
    """Builds the mutant in ``folder``, which it empties first, and asks the judges in turn until one finds
    it, unless the answers are cached. Mutants that share a folder reuse each other's unchanged objects. A
    verdict that is missing because the judge's process ended, or took too much memory, is not a pass.
    """
    known = cache.root() / "mutants" / f"{cache.digest([repr(mutant), _judges_digest()])}.json"
    kept: Any = cache.read_json(known) or {"killed": {}, "ends": {}, "code": None}
    outcome = Outcome(mutant, kept["killed"], kept["ends"], kept["code"] == "same")
    if kept["code"] in ("none", "same"):
        return outcome
    for judge in judges:
        if outcome.is_found:
            break
        if judge in outcome.killed:
            continue
        kept["code"] = _write(mutant, folder, narrow=judge != _OF_WHOLE)
        if kept["code"] in ("none", "same"):
            outcome.killed.clear()  # the narrow copy may build although the whole rung does not
            break
        if kept["code"] == "elsewhere":
            continue  # what changed is not in the narrow copy
        try:
            asked = (_ask, JUDGES[judge], mutant.stage, str(folder))
            found = call(*asked, memory_bytes=_MEMORY_BYTES, preload=_PRELOAD)
        except ProcessEnded as error:
            found, outcome.ends[judge] = True, error.message
        outcome.killed[judge] = found
    cache.write_text(known, json.dumps(kept))
    return replace(outcome, is_same=kept["code"] == "same")


def _write(mutant: Mutant, folder: Path, narrow: bool) -> str:
    """Copies all stages, some of which the tests of others run, and mutates one. Returns what its code is:
    ``none``, ``same`` as the rung's, so ``elsewhere`` in a narrow copy, or ``other``.
    """
    original = "" if mutant.old == mutant.new else _rungs_code(mutant.stage, folder, narrow)
    _copy(mutant.stage, folder, narrow)
    own = _in_copy(mutant.stage, folder) / mutant.file
    file = own if own.is_file() else folder / include_directory().name / mutant.file
    file.write_text(mutant.changed(file.read_text(encoding="utf-8")), encoding="utf-8")
    try:
        code = call(_ask, _code, mutant.stage, str(folder), preload=_PRELOAD)
    except BuildError:
        return "none"
    return "other" if code != original else "elsewhere" if narrow else "same"


@functools.cache
def _rungs_code(stage: str, folder: Path, narrow: bool) -> str:
    """The digest of an unchanged rung's code in this folder."""
    _copy(stage, folder, narrow)
    code: str = call(_ask, _code, stage, str(folder), preload=_PRELOAD)
    return code


def _copy(stage: str, folder: Path, narrow: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    if narrow:
        _narrow(discover()[stage], _in_copy(stage, folder) / "stage.toml")


def _in_copy(stage: str, folder: Path) -> Path:
    """The rung's folder in a copy of all stages."""
    return folder / discover()[stage].path.relative_to(root())


def _narrow(stage: Stage, table: Path) -> None:
    """Makes a rung that is compiled for one dtype and head dim alone, which takes a fraction of the time."""
    text, dtype = table.read_text(encoding="utf-8"), stage.dtypes[0]
    text = re.sub(r"(?m)^dtypes = .*$", f'dtypes = ["{dtype}"]', text)
    options = f"LADDER_DTYPES = [{1 << DTYPES.index(dtype)}]\n"
    if stage.head_dims:
        head_dim = _HEAD_DIM if _HEAD_DIM in stage.head_dims else stage.head_dims[0]
        text = re.sub(r"(?m)^head_dims = .*$", f"head_dims = [{head_dim}]", text)
        options += f"LADDER_HEAD_DIMS = [{head_dim}]\n"
    header = "[options]\n"
    text = text.replace(header, header + options) if header in text else f"{text}\n{header}{options}"
    table.write_text(text, encoding="utf-8")


def _require_passed(unchanged: Outcome) -> None:
    """Raises :class:`LadderError` if the rung itself does not build, or if a judge finds it wrong, and so
    would find all mutants.
    """
    if not unchanged.killed:
        raise LadderError(f"{unchanged.mutant.stage} does not build without any change")
    for judge, found in unchanged.killed.items():
        if found:
            stage, end = unchanged.mutant.stage, unchanged.ends.get(judge)
            raise LadderError(f"{judge} finds {stage} wrong without any change" + (f": {end}" if end else ""))


def _unchanged(stage: Stage) -> Mutant:
    first = stage.kernel.read_text(encoding="utf-8").splitlines()[0]
    return Mutant(stage.name, 1, "none", first, first)


def _judges_digest() -> str:
    """A digest of everything besides the mutants' own sources that affects the judges' answers: they see all
    rungs, since the tests of some run their neighbours.
    """
    package = Path(ladder.__file__).resolve().parent
    paths = [*package.rglob("*.py"), *root().rglob("*"), *emulator_library().directory.rglob("*.so")]
    files = {path for path in paths if path.is_file() and "__pycache__" not in path.parts}
    return cache.digest(path.read_bytes() for path in sorted({*files, Path(__file__).resolve()}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all of them")
    judges = ", ".join(_DEFAULT_JUDGES)
    parser.add_argument("--judge", action="append", choices=list(JUDGES), help=f"default: {judges}")
    parser.add_argument(
        "--sample",
        type=int,
        default=_SAMPLE,
        metavar="N",
        help=f"so many mutants of each rung, the same each time ({_SAMPLE}; 0: all)",
    )
    parser.add_argument("--kind", action="append", metavar="KIND", help="of change; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once (as many as cores)")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="save the outcomes, a row per mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants and judge none")


def main(options: argparse.Namespace) -> int:
    """Prints the table and the surviving mutants; returns 1 if there is one."""
    ladder = discover()
    stages = [ladder[name] for name in options.stages] or list(ladder)
    found = [
        mutant
        for stage in stages
        for mutant in sampled(
            [one for one in rung_mutants(stage) if one.kind in (options.kind or [one.kind])], options.sample
        )
    ]
    if options.list:
        for mutant in found:
            print(f"{mutant.name} {mutant.file}:{mutant.line}")
            print("\n".join([f"-{line}" for line in mutant.old.splitlines()]))
            print("\n".join([f"+{line}" for line in mutant.new.splitlines()]))
        return 0
    if options.out:
        files.require_target(options.out)
    judges = [judge for judge in JUDGES if judge in (options.judge or _DEFAULT_JUDGES)]
    originals = [_unchanged(stage) for stage in stages]
    with (
        steps("Judging", len(originals) + len(found), elsewhere=False) as progress,
        tempfile.TemporaryDirectory(prefix="ladder-mutants-") as directory,
        ThreadPoolExecutor(options.jobs) as pool,
    ):

        def judge(mutant: Mutant) -> Outcome:
            with progress.step(f"{mutant.stage}:{mutant.line}"):
                return judge_mutant(mutant, judges, Path(directory) / f"stages{threading.get_ident()}")

        for outcome in pool.map(judge, originals):
            _require_passed(outcome)
        outcomes = list(pool.map(judge, found))
    if options.out:
        record.save(options.out, outcomes, equivalent())
    return 1 if report(outcomes, judges) else 0


def report(outcomes: Sequence[Outcome], judges: Sequence[str]) -> list[Mutant]:
    """Prints the outcomes; returns the mutants that no judge found."""
    listed = equivalent()
    wrong = [outcome for outcome in outcomes if outcome.killed and outcome.mutant.name not in listed]
    survivors = [outcome.mutant for outcome in wrong if not outcome.is_found]
    for mutant in survivors:
        print(f"{mutant.name} is not found: {mutant.stage}/{mutant.file}:{mutant.line}")
        print("\n".join([f"- {line.strip()}" for line in mutant.old.splitlines()]))
        print("\n".join([f"+ {line.strip()}" for line in mutant.new.splitlines()]))
    for outcome in outcomes:
        for judge, end in outcome.ends.items():
            print(f"{outcome.mutant.name} ends {judge}: {end}")
        if outcome.mutant.name in listed and outcome.is_found:
            print(f"{outcome.mutant.name} is said to be equivalent and was found wrong", file=sys.stderr)
    Console().print(_table(outcomes, wrong, judges))
    return survivors


def _table(outcomes: Sequence[Outcome], wrong: Sequence[Outcome], judges: Sequence[str]) -> Table:
    """By kind of change: how many mutants there are, and which judge found them first."""
    headings = ("mutants", "do not build", "same code", "equivalent", "wrong")
    table = Table("kind", *headings, *(f"found by {judge}" for judge in judges), "by none")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in [*dict.fromkeys(outcome.mutant.kind for outcome in outcomes), "all"]:
        rows = [outcome for outcome in outcomes if kind in (outcome.mutant.kind, "all")]
        ours = [outcome for outcome in wrong if kind in (outcome.mutant.kind, "all")]
        same = sum(outcome.is_same for outcome in rows)
        builds = sum(bool(outcome.killed) for outcome in rows)
        cells = [len(rows), len(rows) - builds - same, same, builds - len(ours), len(ours)]
        cells += [sum(outcome.killed.get(judge, False) for outcome in ours) for judge in judges]
        table.add_row(kind, *map(str, [*cells, sum(not outcome.is_found for outcome in ours)]))
    return table
