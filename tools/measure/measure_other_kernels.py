"""Counts kernels of public repositories on the emulator and on a GPU, and compares the counts.

    python -m tools.measure.measure_other_kernels --sources DIR --clone    # brings the repositories into DIR
    python -m tools.measure.measure_other_kernels --sources DIR            # on the emulator; two minutes
    python3 -m tools.measure.measure_other_kernels --sources DIR --gpu     # on a GPU; two minutes
    python -m tools.measure.measure_other_kernels                          # shows where the two differ

``other_kernels/programs.toml`` lists the repositories, their commits and the programs. A program is a driver
of ours that includes a repository's source and launches its kernels on at most one block an SM, once on the
emulator and several times on the GPU. The counts are in ``other_kernels.csv``, a row for each kernel, and in
``h200/other_kernels.csv``, a row for each launch. The exit code of the comparison is 1 if a count differs for
another cause than lost arbitration or timing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

import pandas as pd  # noqa: E402

from ladder.counts import nsight  # noqa: E402
from ladder.errors import LadderError  # noqa: E402
from ladder.run.emulator import COUNTERS  # noqa: E402
from tools.measure.measure_counters import environment_here, metrics_here  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DRIVERS = ROOT / "results" / "other_kernels"
COUNTED = ROOT / "results" / "other_kernels.csv"
MEASURED = ROOT / "results" / "h200" / "other_kernels.csv"
ARCH = "sm_90"
#: Launches of each kernel on the GPU. Lost arbitration only adds, so the least is the accesses' own cost.
LAUNCHES = 5
#: What tells a kernel from the others.
KEY = ["repository", "kernel", "grid", "block"]
#: What is compared. ``conflicts`` is a sum of others.
COLUMNS = tuple(name for name in COUNTERS if name != "conflicts")
LOST = nsight.ARBITRATION[0]
LOST_ARBITRATION, TIMING = "lost arbitration", "timing"
#: What lost arbitration adds to.
MAY_LOSE = ("wavefronts_ld", "wavefronts_st", "conflicts_ld", "conflicts_st", "conflicts_atom")


@dataclass(frozen=True)
class Program:
    """A driver and the repository whose source it includes; ``folders`` are the repository's."""

    driver: Path
    repository: str
    folders: tuple[str, ...]
    flags: tuple[str, ...]

    def build(self, sources: Path, target: Any) -> Path:
        from ladder.compile import build_program

        where = (sources / self.repository).resolve()
        for folder in self.folders:
            if not (where / folder).is_dir():
                raise LadderError(f"{where / folder} is missing", "--clone brings the repositories.")
        include = [f"-I{where / folder}" for folder in self.folders]
        return build_program([self.driver], target, [*include, f"-I{DRIVERS / 'stubs'}", *self.flags])


def commits() -> dict[str, str]:
    """The commit of each repository."""
    return dict(_listing()["repositories"])


def programs() -> list[Program]:
    return [
        Program(
            DRIVERS / entry["driver"],
            entry["repository"],
            tuple(entry["folders"]),
            tuple(entry.get("flags", [])),
        )
        for entry in _listing()["program"]
    ]


def _listing() -> dict[str, Any]:
    return tomllib.loads((DRIVERS / "programs.toml").read_text())


def clone(sources: Path) -> None:
    """Checks out the folders that the programs need, at the commits of programs.toml."""
    for repository, commit in commits().items():
        folders = sorted({f for p in programs() if p.repository == repository for f in p.folders})
        where = sources / repository
        if not where.exists():
            url = f"https://github.com/{repository}"
            _git("clone", "--quiet", "--filter=blob:none", "--no-checkout", url, str(where))
        _git("-C", str(where), "checkout", "--quiet", commit, "--", *folders)


def _git(*words: str) -> None:
    try:
        subprocess.run(["git", *words], check=True)
    except subprocess.CalledProcessError as error:
        raise LadderError(f"git {' '.join(words)} failed") from error


def count(sources: Path) -> pd.DataFrame:
    """One row a kernel: what the emulator counts."""
    from ladder.compile import EmulatorTarget
    from ladder.run.emulator import run_program

    rows = []
    with open(os.devnull, "wb") as nowhere:
        for program in programs():
            built = program.build(sources, EmulatorTarget(ARCH))
            result = run_program(built, [], ARCH, output=nowhere)
            if result.fault or result.exit_code:
                raise LadderError(f"{program.driver.name}: {result.fault or f'exit code {result.exit_code}'}")
            for launch in result.launches:
                grid, block = launch.grid or (), launch.block or ()
                rows.append({**_key(program, launch.kernel, grid, block), **launch.counters})
    return pd.DataFrame(rows)[[*KEY, *COUNTERS]].astype(dict.fromkeys(COUNTERS, "Int64"))


def measure(sources: Path) -> pd.DataFrame:
    """One row a launch: where it was measured, and what ncu counts."""
    from ladder.compile import CudaTarget

    ncu = nsight.find_ncu()
    environment = environment_here(ncu)
    with ThreadPoolExecutor() as pool:
        built = list(pool.map(lambda program: program.build(sources, CudaTarget(ARCH)), programs()))
    measured = []
    with tempfile.TemporaryDirectory() as temporary:
        wanted = {*nsight.metric_names(), *nsight.ARBITRATION}
        metrics = [name for name in metrics_here(ncu, Path(temporary)) if name in wanted]
        for program, binary in zip(programs(), built, strict=True):
            report = Path(temporary) / f"{binary.name}.ncu-rep"
            nsight.run(nsight.command([str(binary), str(LAUNCHES)], metrics=metrics, report=report, ncu=ncu))
            raw = nsight.read_raw(nsight.run(nsight.import_command(report, "raw", ncu=ncu)))
            print(f"{binary.name}: {len(raw)} launches", flush=True)
            columns = zip(raw["Kernel Name"], raw["Grid Size"], raw["Block Size"], strict=True)
            keys = [_key(program, kernel, _sizes(grid), _sizes(block)) for kernel, grid, block in columns]
            measured.append(pd.concat([pd.DataFrame(keys), raw[raw.columns.intersection(metrics)]], axis=1))
    frame = pd.concat(measured, ignore_index=True)
    numbers = frame.columns.difference(KEY)
    frame[numbers] = frame[numbers].astype("Int64")
    return pd.concat([pd.DataFrame([environment] * len(frame)), frame], axis=1)


def _key(program: Program, kernel: str, grid: Sequence[Any], block: Sequence[Any]) -> dict[str, str]:
    sizes = {"grid": "x".join(map(str, grid)), "block": "x".join(map(str, block))}
    return {"repository": program.repository, "kernel": plain_name(kernel), **sizes}


def _sizes(text: str) -> list[str]:
    """The sizes in ncu's ``(2, 1, 1)``."""
    return re.findall(r"\d+", text)


def plain_name(demangled: str) -> str:
    """The name of a kernel with its template arguments, in the same words from the emulator and from ncu."""
    name = re.sub(r"\((?:bool|(?:unsigned )?(?:int|long))\)", "", demangled)  # ncu: (int)16
    name = re.sub(r"(?:\(anonymous namespace\)|<unnamed>)::", "", name)
    name = re.sub(r"\(.*", "", name).removeprefix("void ")
    name = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", name))
    return re.sub(r"(?<=\d)ul?\b|\s", "", name)


@dataclass(frozen=True)
class Cell:
    """A count that differs, of the kernel with this KEY. ``least`` and ``most`` are of the GPU's launches;
    ``counted`` is None where the emulator leaves it empty; ``cause`` is LOST_ARBITRATION, TIMING or, if it is
    neither, empty.
    """

    key: tuple[str, ...]
    column: str
    least: int
    most: int
    counted: int | None
    cause: str

    @property
    def kernel(self) -> str:
        return self.key[KEY.index("kernel")]

    @property
    def measured(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"

    @property
    def emulated(self) -> str:
        return "" if self.counted is None else f"{self.counted:,}"


def differences(launches: pd.DataFrame, counted: pd.DataFrame) -> list[Cell]:
    """The cells where the least of the GPU's launches is not what the emulator counts.

    Raises :class:`LadderError` if the tables are not of the same kernels.
    """
    counters = pd.concat([launches[[*KEY, LOST]], nsight.counters(launches)[list(COLUMNS)]], axis=1)
    of_kernel = counters.groupby(KEY, sort=False)
    least, most, ours = of_kernel.min(), of_kernel.max(), counted.set_index(KEY)
    if missing := set(least.index) ^ set(ours.index):
        raise LadderError(f"{len(missing)} kernels are in one table alone, such as {min(missing)}")
    cells = []
    for key in least.index:
        for column in COLUMNS:
            low, high, mine = least.at[key, column], most.at[key, column], ours.at[key, column]
            if pd.isna(low) or (not pd.isna(mine) and low == mine):
                continue
            number = None if pd.isna(mine) else int(mine)
            cause = _cause(column, int(low), int(high), number, int(most.at[key, LOST]))
            cells.append(Cell(key, column, int(low), int(high), number, cause))
    return cells


def _cause(column: str, least: int, most: int, counted: int | None, lost: int) -> str:
    if counted is None:
        return ""
    if column in MAY_LOSE:
        return LOST_ARBITRATION if 0 < least - counted <= lost else ""
    return TIMING if least != most else ""


def report(cells: Sequence[Cell], kernels: int) -> str:
    """The cells as an aligned table, and how many kernels agree."""
    head = ["kernel", "column", "measured", "emulator", ""]
    rows = [[c.kernel, c.column, c.measured, c.emulated, c.cause] for c in cells]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in [head, *rows]] if rows else []
    return "\n".join([*lines, summary(cells, kernels)])


def summary(cells: Sequence[Cell], kernels: int) -> str:
    """How many kernels agree, and how many more but for a cause outside the kernel."""
    causes: dict[tuple[str, ...], set[str]] = {}
    for cell in cells:
        causes.setdefault(cell.key, set()).add(cell.cause)
    text = f"{kernels - len(causes)} of {kernels} kernels are equal in every column"
    for excuses in ({LOST_ARBITRATION}, {TIMING}, {LOST_ARBITRATION, TIMING}):
        count = list(causes.values()).count(excuses)
        text += f", {count} but for {' and '.join(sorted(excuses))}" if count else ""
    return text


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if i in (2, 3) else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The launches measured on the GPU, and the kernels counted on the emulator."""
    return pd.read_csv(MEASURED), pd.read_csv(COUNTED).astype(dict.fromkeys(COUNTERS, "Int64"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, metavar="DIR", help="where the repositories are")
    parser.add_argument("--clone", action="store_true", help="bring the repositories there with git")
    parser.add_argument("--gpu", action="store_true", help="measure on this machine's GPU")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the counts")
    options = parser.parse_args()
    if not options.sources and (options.clone or options.gpu or options.out):
        parser.error("--sources is missing")
    try:
        if options.clone:
            clone(options.sources)
        elif options.sources:
            kernels = measure(options.sources) if options.gpu else count(options.sources)
            kernels.to_csv(options.out or (MEASURED if options.gpu else COUNTED), index=False)
        else:
            launches, counted = read()
            cells = differences(launches, counted)
            print(report(cells, len(counted)))
            return int(any(not cell.cause for cell in cells))
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
