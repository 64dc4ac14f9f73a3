"""Runs the programs of public repositories on the emulator: one row per program in ``corpus.csv``.

    python -m tools.measure.run_corpus DIR DIR@COMMIT ...                  # all programs of these checkouts
    python -m tools.measure.run_corpus DIR --only NAMES --seconds 120      # those in a file of paths or names
    python -m tools.measure.run_corpus DIR --check                         # also under the sanitizer
    python -m tools.measure.run_corpus DIR --native                        # on a GPU: outputs to compare with
    python -m tools.measure.run_corpus                                     # shows the table by outcome

DIR is a checkout of zjin-lcf/HeCBench, NVIDIA/cuda-samples or xlite-dev/LeetCUDA; nothing is fetched. C++
programs run by ``ladder emulate``, scripts by ``ladder torch``, in their own folder, each with a time
limit. A program that the table has already, with the same files, arguments and emulator, is not run again.
``corpus/arguments.csv`` lists the arguments of programs whose own would take too long, ``corpus/edits.csv``
what is replaced in scripts for the same reason.

The outcomes: `right` (its own check passes, or its output equals a GPU's), `ran` (nothing says whether it is
right), `wrong` (its own check fails), `refused` (the emulator lacks something), `fault` (a kernel's error),
`crashed` (the host's code died), `slow` (over the limit), `missing` (data or a library that is not part of
CUDA). The cell `detail` has the line that decided, or what is lacking.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from ladder.errors import BuildError, LadderError  # noqa: E402
from tools.measure import corpus_outputs  # noqa: E402
from tools.measure.corpus_outputs import Output  # noqa: E402
from tools.measure.corpus_programs import Program, open_checkout, programs  # noqa: E402

TABLE = ROOT / "results" / "corpus.csv"
OUTCOMES = ("right", "ran", "wrong", "refused", "fault", "crashed", "slow", "missing")
#: What a script may take more than the limit: its extensions are built while it runs.
SCRIPT_BUILD_S = 600
#: As much of what a program prints is read, from its end. A script's rows by source line take megabytes.
_READ_BYTES = 1 << 25
_DETAIL_LETTERS = 160

_FAILS = re.compile(
    r"\bfail(?:s|ed|ures?)?\b|\bmismatch(?:es|ed)?\b|\bincorrect\b|\bnot (?:match|equal|correct)\b|\bwrong\b"
    r"|\breturned ERROR\b",
    re.I,
)
_PASSES = re.compile(
    r"\bpass(?:es|ed)?\b|\bcorrect(?:ly)?\b|\bsucce(?:ss|eded|ssful|ssfully)\b"
    r"|\b(?:results?|outputs?) match\b|\bverified\b|\bverification\b.*\bok\b|\bidentical\b|\breturned OK\b",
    re.I,
)
#: A count of no faults is none.
_NO_FAULTS = re.compile(
    r"(?<![\d.])0+ (?:\w+ )?(?:fail\w*|mismatch\w*|incorrect\w*|wrong)"
    r"|\b(?:fail\w*|mismatch\w*)\s*[:=]\s*0(?![\d.])",
    re.I,
)
_NO_DATA = re.compile(
    r"(?:can(?:no|')t|could not|unable to|failed to|error) (?:\w+ ){0,2}(?:open|find|read|load)"
    r"|no such file|usage:|not found|ModuleNotFoundError|FileNotFoundError",
    re.I,
)
#: A program that demonstrates assertions says so.
_EXPECTED = re.compile(r"\bassert\w* failed as expected\b", re.I)
_UNCOUNTED_DEATH = re.compile(r"^error: .* was ended by (SIG\w+); nothing was counted")
#: The command's own first line.
_BUILDING = re.compile(r"Building .* \.\.\.\n")
_UNAVAILABLE = re.compile(
    r"(?:is|are) not emulated|\bonly\b.*\bemulated\b|does not have"
    r"|not supported|not implemented|not modelled",
    re.I,
)


#: How a sample ends that needs another machine, such as several GPUs; it says so in its last line.
WAIVED = 2


@dataclass
class Row:
    """What became of a program. ``instructions`` are warp instructions, ``findings`` the sanitizer's, None if
    it was not run under it; ``emulator`` and ``program`` are digests.
    """

    repository: str
    commit: str
    path: str
    outcome: str
    detail: str = ""
    arguments: str = ""
    instructions: int | None = None
    seconds: float | None = None
    findings: int | None = None
    places: str = ""
    program: str = ""
    emulator: str = ""


@dataclass
class Ended:
    """How a command ended: its exit code (None past the limit), what it printed, and its JSON rows."""

    code: int | None
    output: str
    seconds: float
    rows: list[dict[str, object]] = field(default_factory=list)


def verdict(output: str, code: int) -> tuple[str, str]:
    """``right``, ``wrong`` or ``ran`` by what a program prints, and the line that says so."""
    passed = ""
    for line in output.splitlines():
        told = _NO_FAULTS.sub("", line)
        if _FAILS.search(told):
            return "wrong", line
        if _PASSES.search(told) or (told != line and not passed):
            passed = passed or line
    if code:
        return "wrong", f"exit code {code}"
    if printed := corpus_outputs.beside_torch(output):
        return printed
    return ("right", passed) if passed else ("ran", "")


def outcome(ended: Ended) -> tuple[str, str]:
    """The outcome of a program that was built, and its reason."""
    if ended.code is None:
        return "slow", ""
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("fault: assertion:") and (expected := list(filter(_EXPECTED.search, lines))):
            return "right", expected[0]
        if line.startswith("fault:"):
            refused = _UNAVAILABLE.search(line)
            return ("refused" if refused else "fault"), line.removeprefix("fault:").strip()
        if line.startswith("died:"):
            return "crashed", line.removeprefix("died:").strip()
        if died := _UNCOUNTED_DEATH.search(line):
            return "crashed", f"by {died[1]}, before a launch"
    told = [line for line in lines if _UNAVAILABLE.search(line)]
    if ended.code and told:
        return "refused", told[-1]
    lost = [line for line in lines if _NO_DATA.search(line)]
    if lost and (ended.code or not ended.rows):
        return "missing", lost[-1]
    return verdict(ended.output, ended.code)


def waived(program: Program, ended: Ended) -> tuple[str, str] | None:
    """The outcome of a sample that needs another machine; None of all others."""
    if ended.code != WAIVED or program.checkout.name != "NVIDIA/cuda-samples":
        return None
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    return "missing", lines[-1] if lines else ""


def unbuilt(error: BuildError) -> tuple[str, str]:
    """The outcome of a program that does not build, and what it lacks."""
    text = str(error)
    if found := re.search(r"does not have: (.*)", text):
        return "refused", found[1]
    if found := re.search(r"The program uses (.*?)\. Emulated are", text):
        return "refused", found[1]
    if found := re.search(r"fatal error: ([\w./+-]+): No such file", text):
        return "missing", found[1]
    if re.search(r"undefined reference to [`'‘](?:gl[A-Z]|glut|glew)", text):
        return "missing", "OpenGL"
    if found := re.search(r"cannot find -l(\w+)", text):
        return "missing", f"library {found[1]}"
    lines = [line for line in text.splitlines() if re.search(r"error|undefined|-rdc", line)]
    return "refused", (lines or text.splitlines())[0]


class Runner:
    """Runs programs with ``seconds`` each, and with ``check`` a second time under the sanitizer."""

    def __init__(self, seconds: float, check: bool, arch: str) -> None:
        self.seconds, self.check, self.arch = seconds, check, arch
        self.references = corpus_outputs.read()

    def row(self, program: Program, emulator: str) -> Row:
        """Builds and runs a program."""
        result = Row(
            program.checkout.name,
            program.checkout.commit,
            program.path,
            "missing",
            program.refused,
            " ".join(program.arguments),
            program=program.digest(),
            emulator=emulator,
        )
        if program.refused:
            return result
        try:
            if not program.is_script:
                self._build(program)
        except BuildError as error:
            result.outcome, detail = unbuilt(error)
            result.detail = detail.replace(f"{program.checkout.folder}/", "")
            return result
        except LadderError as error:
            result.outcome, result.detail = "missing", error.message
            return result
        ended = self._run(program, check=False)
        result.outcome, result.detail = waived(program, ended) or outcome(ended)
        if result.outcome in ("wrong", "crashed") and (lost := program.absent_file()):
            result.outcome, result.detail = "missing", lost
        if result.outcome in ("ran", "wrong"):
            self._compare(result, ended.output)
        result.seconds = round(ended.seconds, 1)
        if ended.code is not None:
            result.instructions = sum(int(str(row["executed"])) for row in ended.rows)
        if self.check and result.outcome in ("right", "ran", "wrong", "fault"):
            checked = self._run(program, check=True)
            if checked.code is not None:
                result.findings, result.places = len(checked.rows), places(checked.rows)
        return result

    def _compare(self, result: Row, output: str) -> None:
        """With what the program prints on a GPU, if that says anything."""
        reference = self.references.get((result.repository, result.path))
        if (
            reference is None
            or reference.program != result.program
            or not corpus_outputs.tells(reference.text)
        ):
            return
        text = corpus_outputs.lasting(output)
        if corpus_outputs.agree(text, reference.text):
            result.outcome, result.detail = "right", f"prints what it prints on an {reference.gpu}"
        elif result.outcome == "ran":
            result.outcome, result.detail = "wrong", f"prints other numbers than on an {reference.gpu}"

    def _build(self, program: Program) -> None:
        from ladder.compile import EmulatorTarget, build_program

        before = Path.cwd()
        os.chdir(program.folder)
        try:
            build_program([Path(name) for name in program.sources], EmulatorTarget(self.arch), program.flags)
        finally:
            os.chdir(before)

    def _run(self, program: Program, *, check: bool) -> Ended:
        words = ["--arch", self.arch, *(["--check"] if check else []), "--json", "-"]
        if program.is_script:
            return self._run_script(program, words)
        words += [f"--nvcc-flags={flag}" for flag in program.flags]
        return _ladder(["emulate", *words, *program.sources, "--", *program.arguments], program, self.seconds)

    def _run_script(self, program: Program, words: Sequence[str]) -> Ended:
        """Runs the script, as edited, in its own folder."""
        with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
            script = Path(temporary, program.sources[0])
            script.write_text(program.script())
            command = ["torch", *words, str(script), *program.arguments]
            return _ladder(command, program, self.seconds + SCRIPT_BUILD_S)


def _ladder(words: Sequence[str], program: Program, seconds: float) -> Ended:
    ended = limited([sys.executable, "-m", "ladder", *words], program.folder, seconds)
    ended.output, ended.rows = split(ended.output)
    return ended


def split(output: str) -> tuple[str, list[dict[str, object]]]:
    """What the program printed, and the rows that ``--json -`` prints after it."""
    lines = _BUILDING.sub("", output, count=1).splitlines()
    for first in reversed(range(len(lines))):
        if lines[first] == "[" and "]" in lines[first:]:
            last = lines.index("]", first) + 1
            return "\n".join(lines[:first] + lines[last:]), json.loads("".join(lines[first:last]))
    return "\n".join(line for line in lines if line != "[]"), []


def native_output(program: Program, seconds: float, gpu: str) -> Output | None:
    """What a program prints on the GPU of this machine; None if it does not build, or end well in time."""
    if program.refused or program.is_script:
        return None
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        binary = str(Path(temporary, "main"))
        build = ["nvcc", "-arch=native", *program.sources, *program.flags, "-o", binary]
        if limited(build, program.folder, seconds).code != 0:
            return None
        runs = [limited([binary, *program.arguments], program.folder, seconds) for _ in range(2)]
    text = corpus_outputs.repeated(*(ended.output for ended in runs))
    if any(ended.code != 0 for ended in runs) or not corpus_outputs.tells(text):
        return None
    return Output(program.checkout.name, program.path, program.digest(), gpu, text)


def limited(command: Sequence[str], folder: Path, seconds: float) -> Ended:
    """Runs a command in a folder, with what it starts, for at most ``seconds``."""
    with tempfile.TemporaryFile() as said:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        took = time.monotonic() - started
        said.seek(max(0, said.seek(0, os.SEEK_END) - _READ_BYTES))
        return Ended(code, said.read().decode(errors="replace"), took)


def places(findings: Iterable[dict[str, object]]) -> str:
    """The kind and place of each finding, in one cell."""
    return "; ".join(sorted({f"{row['kind']} {_place(row['who'])}".strip() for row in findings}))


def _place(who: object) -> str:
    """The line that kernels' authors know: in the kernel's own file, if there is one."""
    if not isinstance(who, dict):
        return ""
    file, line = (who["kernel_file"], who["own_line"]) if who["kernel_file"] else (who["file"], who["line"])
    return f"{Path(file).name}:{line}" if file else ""


def emulator_digest() -> str:
    """Hashes the emulator's library and what of the package runs programs."""
    from ladder.compile.libraries import emulator_library

    library = emulator_library()
    parts = hashlib.sha256()
    for file in sorted([library.entry_points, *library.directory.rglob("libladder_emulator*.so*")]):
        parts.update(file.read_bytes())
    return parts.hexdigest()[:16]


def read(table: Path) -> dict[tuple[str, str], Row]:
    """The rows by repository and path; none if there is no table."""
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        rows = [_row(cells) for cells in csv.DictReader(file)]
    return {(row.repository, row.path): row for row in rows}


def _row(cells: dict[str, str]) -> Row:
    numbers: dict[str, Callable[[str], float]] = {"instructions": int, "seconds": float, "findings": int}
    values: dict[str, Any] = dict(cells)
    for name, number in numbers.items():
        values[name] = number(cells[name]) if cells[name] else None
    return Row(**values)


def write(table: Path, rows: Iterable[Row]) -> None:
    """Replaces the table, sorted by repository and path."""
    names = [column.name for column in fields(Row)]
    with tempfile.NamedTemporaryFile("w", newline="", dir=table.parent, delete=False) as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.repository, row.path)):
            cells = {name: getattr(row, name) for name in names}
            cells["detail"] = " ".join(row.detail.split())[:_DETAIL_LETTERS]
            writer.writerow(cells)
    os.chmod(file.name, 0o644)
    shutil.move(file.name, table)


def summary(rows: Sequence[Row]) -> str:
    """How many programs of each repository have which outcome."""
    lines = []
    for repository in sorted({row.repository for row in rows}):
        counts = Counter(row.outcome for row in rows if row.repository == repository)
        told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
        lines.append(f"{repository}: {sum(counts.values())} programs: {told}")
    return "\n".join(lines)


def chosen(found: Sequence[Program], only: Path | None) -> list[Program]:
    """Those whose path or folder's name is a line of the file ``only``."""
    if only is None:
        return list(found)
    names = set(only.read_text().split())
    return [program for program in found if names & {program.path, program.folder.name}]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", metavar="DIR[@COMMIT]")
    parser.add_argument("--only", type=Path, metavar="FILE", help="paths or folders' names, one a line")
    parser.add_argument("--seconds", type=float, default=600, help="limit for each run (600)")
    parser.add_argument("--arch", default="sm_80", help="virtual GPU (sm_80)")
    parser.add_argument("--check", action="store_true", help="run each also under the sanitizer")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at once (1)")
    parser.add_argument("--native", action="store_true", help="on a GPU: keep outputs to compare with")
    parser.add_argument("--out", type=Path, default=TABLE, metavar="FILE", help="the table (corpus.csv)")
    options = parser.parse_args()
    try:
        run(options)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Runs what the table lacks, ``--jobs`` at once; an interrupted run continues where it was."""
    checkouts = [open_checkout(text) for text in options.checkouts]
    todo = chosen([program for checkout in checkouts for program in programs(checkout)], options.only)
    if options.native:
        run_natively(todo, options)
        return
    rows = read(options.out)
    emulator = emulator_digest() if todo else ""
    todo = [program for program in todo if not is_current(rows, program, emulator, options)]
    runner = Runner(options.seconds, options.check, options.arch)
    with ProcessPoolExecutor(options.jobs) as pool:
        for ended in as_completed([pool.submit(runner.row, program, emulator) for program in todo]):
            row = ended.result()
            rows[row.repository, row.path] = row
            write(options.out, rows.values())
            print(f"{row.outcome:8} {row.path} {row.detail[:100]}", flush=True)
    print(summary(list(rows.values())))


def gpu_name() -> str:
    """The first GPU of this machine. Raises :class:`LadderError` without one."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise LadderError("--native needs a GPU", "Without it the programs run on the emulator.") from None
    return found.stdout.splitlines()[0]


def run_natively(todo: Sequence[Program], options: argparse.Namespace) -> None:
    """Keeps what the programs print on the GPU of this machine."""
    gpu = gpu_name()
    outputs = dict(corpus_outputs.read())
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(native_output, program, options.seconds, gpu) for program in todo]
        for ended in as_completed(waiting):
            if output := ended.result():
                outputs[output.repository, output.path] = output
                corpus_outputs.write(outputs.values())
    print(f"{len(outputs)} outputs")


def is_current(
    rows: Mapping[tuple[str, str], Row], program: Program, emulator: str, options: argparse.Namespace
) -> bool:
    """Whether a row need not be made again. One that was too slow is tried again with a higher limit."""
    row = rows.get((program.checkout.name, program.path))
    if row is None or (row.program, row.emulator) != (program.digest(), emulator):
        return False
    if row.outcome == "slow":
        return (row.seconds or 0) >= options.seconds
    unchecked = row.findings is None and row.outcome in ("right", "ran", "wrong", "fault")
    return not (options.check and unchecked)


if __name__ == "__main__":
    sys.exit(main())
