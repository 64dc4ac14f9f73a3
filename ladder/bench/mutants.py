"""Mutation testing of the verdicts: each mutant is a kernel.cu with one change made by machine.

A verdict that passes a mutant is blind to the change. ``equivalent_mutants.toml`` lists the mutants that
compute the same as their rung, with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ladder.backends import EmulatorBackend
from ladder.build import build, emulator_library
from ladder.common import cache
from ladder.common.isolation import ProcessEnded, call
from ladder.common.progress import steps
from ladder.emulator import instruction_limit
from ladder.errors import BuildError, LadderError
from ladder.evaluation import check_stage, run_comparison
from ladder.operations import DEFAULT_PROBLEM
from ladder.stages import discover, root

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STAGES = ("v1_minimal", "v2_warp_mma")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
#: Stops mutants that loop forever; no warp of a correct rung comes near it on the problems tried.
_MOST_INSTRUCTIONS = 20_000_000
#: Stops mutants that write all over reserved memory. Judges of correct rungs use 1.3 GiB at most.
_MEMORY_BYTES = 4 * 2**30
_REPOSITORY = Path(__file__).resolve().parents[2]
#: What judges import, which takes seconds.
_PRELOAD = (__name__, "pandas", "pytest", "torch")

#: For each kind of change, the pattern and its replacements.
_SWAPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("comparison", r"(?<![<\-=!>])<(?![<=])(?= )", ("<=",)),
    ("comparison", r"(?<= )<=(?= )", ("<",)),
    ("comparison", r"(?<= )>(?= )", (">=",)),
    ("comparison", r"(?<= )>=(?= )", (">",)),
    ("comparison", r"==", ("!=",)),
    ("comparison", r"!=", ("==",)),
    ("logic", r"&&", ("||",)),
    ("logic", r"\|\|", ("&&",)),
    ("arithmetic", r"(?<= )\+(?= )", ("-",)),
    ("arithmetic", r"(?<= )-(?= )", ("+",)),
    ("arithmetic", r"(?<= )\*(?= )", ("/",)),
    ("arithmetic", r"(?<= )/(?= )", ("*",)),
    ("arithmetic", r"(?<= )%(?= )", ("/",)),
    ("arithmetic", r"\+=", ("=", "-=")),
    ("arithmetic", r"\*=", ("=",)),
    ("function", r"\bmin\(", ("max(",)),
    ("function", r"\bfmaxf\(", ("fminf(",)),
    ("scale", r" \* (?:p|problem)\.scale\b|\b(?:p|problem)\.scale \* ", ("",)),
    ("index", r"\bblockIdx\.x\b", ("blockIdx.y",)),
    ("index", r"\bblockIdx\.y\b", ("blockIdx.x", "blockIdx.z")),
    ("index", r"\bblockIdx\.z\b", ("blockIdx.y",)),
    ("index", r"\bkv_heads\b", ("heads",)),
    ("index", r"\bp\.heads\b", ("p.kv_heads",)),
    ("index", r"\bq_len\b", ("kv_len",)),
    ("index", r"\bkv_len\b", ("q_len",)),
    ("index", r"\bkBr\b", ("kBc",)),
    ("index", r"\bkBc\b", ("kBr",)),
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: Lines that begin so do not affect what is computed.
_NO_CODE = ("#", "static_assert", "template", "__global__", "using", "namespace")
#: Operands to swap: of a subtraction, or of a call with two arguments.
_OPERANDS = re.compile(r"([\w.\[\]]+) - ([\w.\[\]]+)")
_STATEMENT = re.compile(
    r"^\s*(?!const|constexpr|using|return|static|template|typename|auto|dim3|break)\S.*;$"
)
_DECLARATION = re.compile(r"^\s*[\w:<>,]+ [*&]?\w+( = |\[|\{|;|\()")


@dataclass(frozen=True)
class Mutant:
    """One change to a line (1-based) of a stage's kernel.cu."""

    stage: str
    line: int
    kind: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """A name that describes the change without the line number, since lines move."""
        digest = hashlib.sha256(f"{self.old.strip()}\0{self.new.strip()}".encode()).hexdigest()[:8]
        return f"{self.stage}-{self.kind}-{digest}"


@dataclass(frozen=True)
class Outcome:
    """Whether each judge found the mutant; empty if the mutant does not build."""

    mutant: Mutant
    killed: dict[str, bool]
    #: How judges' processes ended before they answered, by judge; such a mutant counts as found.
    ends: dict[str, str] = field(default_factory=dict)


def mutants(stage: str, source: str) -> list[Mutant]:
    """All mutants of a kernel.cu: changes below its first namespace, except in comments and directives."""
    lines = source.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("namespace"))
    return mutants_of(stage, lines, range(first, len(lines)))


def mutants_of(stage: str, lines: Sequence[str], places: Iterable[int]) -> list[Mutant]:
    """The mutants of the lines in these places, 0-based."""
    found: dict[str, Mutant] = {}
    for place in places:
        line, number = lines[place], place + 1
        code = line.partition("//")[0].rstrip()
        if not code.strip() or code.lstrip().startswith(_NO_CODE):
            continue
        for kind, new in _changes(code):
            mutant = Mutant(stage, number, kind, line, new)
            found.setdefault(mutant.name, mutant)
    return list(found.values())


def _changes(code: str) -> Iterator[tuple[str, str]]:
    strings = [match.span() for match in re.finditer(r'"[^"]*"', code)]

    def is_text(place: int) -> bool:
        return any(begin <= place < end for begin, end in strings)

    for kind, pattern, others in _SWAPS:
        for match in re.finditer(pattern, code):
            if not is_text(match.start()):
                for other in others:
                    yield kind, code[: match.start()] + other + code[match.end() :]
    for match in _NUMBER.finditer(code):
        if not is_text(match.start()):
            for value in {int(match[0]) + 1, max(0, int(match[0]) - 1)} - {int(match[0])}:
                yield "constant", code[: match.start()] + str(value) + code[match.end() :]
    for match in _OPERANDS.finditer(code):
        yield "operands", f"{code[: match.start()]}{match[2]} - {match[1]}{code[match.end() :]}"
    if _STATEMENT.match(code) and not _DECLARATION.match(code):
        yield "dropped line", ";"


def _unchanged(stage: str, source: str) -> Mutant:
    first = source.splitlines()[0]
    return Mutant(stage, 1, "none", first, first)


def equivalent() -> dict[str, str]:
    """The reasons why mutants compute the same as their rung, by name of the mutant."""
    table = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return {entry["name"]: entry["reason"] for entry in table.get("mutant", [])}


def _build(stage: str) -> bool:
    found = discover()[stage]
    build(found, EmulatorBackend().target(found, None), found.chosen_options({}))
    return True


def _compare(stage: str) -> bool:
    head_dims = discover()[stage].head_dims
    d = DEFAULT_PROBLEM.head_dim if DEFAULT_PROBLEM.head_dim in head_dims else head_dims[0]
    problem = replace(DEFAULT_PROBLEM, head_dim=d)
    return not run_comparison(problem, [stage], backend="emulator", fresh=True).passed


def _check(stage: str) -> bool:
    return bool(check_stage(stage))


def _pytest(stage: str) -> bool:
    import pytest

    silence = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    folder = os.environ["LADDER_STAGES_ROOT"]
    words = [folder, "-x", "-q", "-k", stage, "-c", str(_REPOSITORY / "pyproject.toml"), "--rootdir", folder]
    code = pytest.main([*words, "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminalreporter"])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise LadderError(f"pytest ended with {code!r} on a mutant of {stage}")
    return code is pytest.ExitCode.TESTS_FAILED


JUDGES: dict[str, Callable[[str], bool]] = {"compare": _compare, "check": _check, "pytest": _pytest}


def _ask(judge: Callable[[str], bool], stage: str, folder: str) -> bool:
    """Asks a judge about the stage in that folder of stages; runs in a process of its own."""
    os.environ.update(LADDER_STAGES_ROOT=folder, LADDER_SEED="1", LADDER_THREADS="1")
    with instruction_limit(_MOST_INSTRUCTIONS):
        return judge(stage)


def judge_mutant(mutant: Mutant, judges: Sequence[str], folder: Path) -> Outcome:
    """Builds the mutant in ``folder``, which it empties first, and asks each judge, unless its answer is
    cached. Mutants that share a folder reuse each other's unchanged objects. A verdict that is missing
    because the judge's process ended, or took too much memory, is not a pass.
    """
    known = cache.root() / "mutants" / f"{cache.digest([repr(mutant), _judges_digest()])}.json"
    kept: Any = cache.read_json(known) or {"builds": True, "killed": {}, "ends": {}}
    outcome = Outcome(mutant, kept["killed"], kept["ends"])
    missing = [judge for judge in judges if judge not in outcome.killed] if kept["builds"] else []
    if not missing:
        return outcome
    shutil.rmtree(folder, ignore_errors=True)
    _copy_with(mutant, folder)
    try:
        call(_ask, _build, mutant.stage, str(folder), preload=_PRELOAD)
    except BuildError:
        kept["builds"], missing = False, []
    for judge in missing:
        asked = (_ask, JUDGES[judge], mutant.stage, str(folder))
        try:
            outcome.killed[judge] = call(*asked, memory_bytes=_MEMORY_BYTES, preload=_PRELOAD)
        except ProcessEnded as error:
            outcome.killed[judge], outcome.ends[judge] = True, error.message
    cache.write_text(known, json.dumps(kept))
    return outcome


def _copy_with(mutant: Mutant, folder: Path) -> None:
    """Copies all stages, some of which the tests of others run, and mutates one."""
    shutil.copytree(root(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    kernel = folder / mutant.stage / "kernel.cu"
    lines = kernel.read_text().splitlines()
    assert lines[mutant.line - 1] == mutant.old
    lines[mutant.line - 1] = mutant.new
    kernel.write_text("\n".join(lines) + "\n")


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


def _judges_digest() -> str:
    """A digest of everything besides the mutants' own sources that affects the judges' answers: they see all
    rungs, since the tests of some run their neighbours.
    """
    package = Path(__file__).resolve().parents[1]
    paths = [*package.rglob("*.py"), *root().rglob("*"), *emulator_library().directory.rglob("*.so")]
    others = package / "bench"  # this module alone judges
    files = {path for path in paths if path.is_file() and "__pycache__" not in path.parts}
    files = {path for path in files if others not in path.parents} | {Path(__file__).resolve()}
    return cache.digest(path.read_bytes() for path in sorted(files))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"default: {' and '.join(STAGES)}")
    parser.add_argument("--judge", action="append", choices=list(JUDGES), help="default: all of them")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only this many of the mutants, the same each time"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once (as many as cores)")
    parser.add_argument("--list", action="store_true", help="print the mutants and judge none")


def main(options: argparse.Namespace) -> int:
    """Prints the table and the surviving mutants; returns 1 if one survives pytest."""
    ladder = discover()
    sources = {name: ladder[name].kernel.read_text(encoding="utf-8") for name in options.stages or STAGES}
    found = [mutant for name, source in sources.items() for mutant in mutants(name, source)]
    if options.sample is not None:
        found = sorted(random.Random(0).sample(found, min(options.sample, len(found))), key=lambda m: m.line)
    if options.list:
        for mutant in found:
            print(f"{mutant.name}:{mutant.line}\n-{mutant.old}\n+{mutant.new}")
        return 0
    judges = options.judge or list(JUDGES)
    originals = [_unchanged(name, source) for name, source in sources.items()]
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
    survivors = report(outcomes, judges)
    return 1 if survivors else 0


def report(outcomes: Sequence[Outcome], judges: Sequence[str]) -> list[Mutant]:
    """Prints the outcomes; returns the mutants that no judge found, or that pytest missed if it was asked."""
    same = equivalent()
    built = [outcome for outcome in outcomes if outcome.killed]
    wrong = [outcome for outcome in built if outcome.mutant.name not in same]
    last = "pytest" if "pytest" in judges else judges[-1]
    survivors = [outcome.mutant for outcome in wrong if not outcome.killed[last]]
    for mutant in survivors:
        print(f"{mutant.name} passes {last}: {mutant.stage}/kernel.cu:{mutant.line}")
        print(f"- {mutant.old.strip()}\n+ {mutant.new.strip()}")
    for outcome in built:
        for judge, end in outcome.ends.items():
            print(f"{outcome.mutant.name} ends {judge}: {end}")
        if outcome.mutant.name in same and any(outcome.killed.values()):
            print(f"{outcome.mutant.name} is said to be equivalent and was found wrong", file=sys.stderr)
    table = Table(
        "kind", "mutants", "do not build", "equivalent", "wrong", *(f"{judge} finds" for judge in judges)
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in [*dict.fromkeys(outcome.mutant.kind for outcome in outcomes), "all"]:
        rows = [o for o in outcomes if kind in (o.mutant.kind, "all")]
        ours = [o for o in wrong if kind in (o.mutant.kind, "all")]
        builds = sum(bool(o.killed) for o in rows)
        cells = [len(rows), len(rows) - builds, builds - len(ours), len(ours)]
        cells += [sum(o.killed[judge] for o in ours) for judge in judges]
        table.add_row(kind, *map(str, cells))
    Console().print(table)
    return survivors
