"""The corpus of planted faults and clean kernels: the expectations for each case, and running them."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common import cache
from ladder.compile import EmulatorTarget, Target, build_program
from ladder.stages import discover

if TYPE_CHECKING:
    from ladder.run.emulator import Finding, ProgramResult

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
STAGES = HERE.parents[1] / "stages"
ARCH = "sm_80"
#: For files named hopper_...
HOPPER_ARCH = "sm_90a"
#: Files of planted faults, and of clean programs.
FAULTS = (
    "faults_accesses",
    "faults_races",
    "faults_waits",
    "faults_host",
    "faults_memory",
    "faults_order",
    "faults_grids",
)
CLEAN = ("clean_races", "clean_order", "clean_memory", "clean_host", "clean_pipelines", "clean_programs")
FILES = FAULTS + CLEAN
#: The same of asynchronous programs.
HOPPER_FAULTS = ("hopper_faults", "hopper_faults_rings", "hopper_faults_cluster", "hopper_faults_late")
HOPPER_CLEAN = ("hopper_clean", "hopper_clean_rings", "hopper_clean_cluster")
#: The exit code of a program of rungs.h if the result is wrong.
WRONG_RESULT = 3
_MARK = re.compile(r"fault\((\w+)\): ([a-z ]+)")
_CASE = re.compile(r"^CASE\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """The kind of fault that must be reported, and the line (1-based) that must be named."""

    kind: str
    line: int


def case_names(source: Path) -> list[str]:
    return _CASE.findall(source.read_text())


def expectations(source: Path) -> dict[str, Expected]:
    """The expected faults, from the marks ``fault(case): kind`` on the cases' lines."""
    found = {}
    for number, line in enumerate(source.read_text().splitlines(), 1):
        for case, kind in _MARK.findall(line):
            assert case not in found, f"{case} is marked twice"
            found[case] = Expected(kind.strip(), number)
    return found


def arch_of(source: Path) -> str:
    return HOPPER_ARCH if source.stem.startswith("hopper") else ARCH


def build_corpus(source: Path, target: type[Target] = EmulatorTarget) -> Path:
    """The program that runs the cases of one file."""
    flags = ["-Xcompiler", "-g1", *include_flags(source), "-lcuda"]  # of the driver, tensor maps
    return build_program([source], target(arch_of(source)), flags)


def rung_folder(stage: str) -> Path:
    [kernel] = STAGES.rglob(f"{stage}/kernel.cu")
    return kernel.parent


def include_flags(source: Path) -> list[str]:
    """The include flags for a file of the corpus; one named after a rung finds the rung's headers, too."""
    return [
        f"-I{folder}"
        for folder in (CORPUS, STAGES / "include", *STAGES.rglob(source.stem))
        if folder.is_dir()
    ]


def run_case(program: Path, case: str, arch: str = ARCH) -> ProgramResult:
    from ladder.run.emulator import run_program  # not on a machine that only builds the cases for its GPU

    return run_program(program, [case], arch, check=True)


def lines_of(finding: Finding) -> set[int]:
    """The lines of both parties that a finding names."""
    lines = {
        line for party in (finding.who, finding.other) if party for line in (party.line, party.kernel_line)
    }
    if finding.host_place:
        lines.add(int(finding.host_place.rpartition(":")[2]))
    return lines


def is_caught(expected: Expected, findings: list[Finding]) -> bool:
    return any(f.kind == expected.kind and expected.line in lines_of(f) for f in findings)


# --- rungs with a line changed -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A rung's kernel.cu with one text replaced. ``line`` is part of the line that must be named."""

    name: str
    stage: str
    text: str
    replacement: str
    kind: str
    line: str = ""
    occurrence: int = 1

    def source(self) -> str:
        original = (rung_folder(self.stage) / "kernel.cu").read_text()
        parts = original.split(self.text)
        if len(parts) <= self.occurrence:
            raise ValueError(f"{self.name}: {self.stage}/kernel.cu has {len(parts) - 1} times {self.text!r}")
        before, after = self.text.join(parts[: self.occurrence]), self.text.join(parts[self.occurrence :])
        return before + self.replacement + after


def mutants() -> list[Mutant]:
    """The mutants in mutants.toml."""
    table = tomllib.loads((HERE / "mutants.toml").read_text())
    today = discover().today
    return [
        Mutant(name, today(entry.pop("stage")), replacement=entry.pop("with"), **entry)
        for name, entry in table.items()
    ]


def variants(stage: str) -> tuple[list[str], str]:
    """The names and code of an unchanged rung and all its mutants, each in its own namespace."""
    sources = {stage: (rung_folder(stage) / "kernel.cu").read_text()}
    sources |= {mutant.name: mutant.source() for mutant in mutants() if mutant.stage == stage}
    includes = dict.fromkeys(
        line for text in sources.values() for line in re.findall(r"^#include .*", text, re.M)
    )
    parts = ['#include "rungs.h"', *includes]
    for name, text in sources.items():
        body = re.sub(r"^#include .*", "", text, flags=re.M).replace("void ladder::launch(", "void launch(")
        for general, one in (("dispatch_head_dim<32, 64, 128>", "only_64"), ("dispatch_16_bit", "only_half")):
            body = body.replace(f"{general}(", f"{one}(")
        parts.append(f"namespace {name} {{\nusing namespace ::ladder;\n{body}\n}} // namespace {name}")
    listed = ", ".join(f'{{"{name}", {name}::launch}}' for name in sources)
    parts.append(f"static const std::vector<Rung> rungs{{{listed}}};")
    return list(sources), "\n".join(parts)


def dtype_of(stage: str) -> str:
    return "f32" if stage.startswith("v1") else "f16"


def rungs_source(stage: str) -> Path:
    """A program of a rung's variants: its argument names the one to run."""
    dtype = dtype_of(stage)
    element = {"f32": "float", "f16": "__half"}[dtype]
    text = (
        f'#include "ladder/definitions.h"\n{variants(stage)[1]}\n'
        "int main(int count, char **words) {\n"
        f'  return run_one<{element}>(rungs, count > 1 ? words[1] : "", ladder::DType::{dtype});\n}}\n'
    )
    path = cache.root() / "corpus" / f"{stage}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        cache.write_text(path, text)
    return path


def write_rungs_stage(stage: str, folder: Path) -> None:
    """A stage of a rung's variants: VARIANT in the environment names the one to launch."""
    folder.mkdir()
    for path in (*rung_folder(stage).glob("*.h"), CORPUS / "rungs.h"):
        shutil.copy(path, folder)
    table = (rung_folder(stage) / "stage.toml").read_text()
    for key, value in (("before", None), ("head_dims", "[64]"), ("dtypes", f'["{dtype_of(stage)}"]')):
        table = re.sub(rf"^{key} = .*\n", f"{key} = {value}\n" if value else "", table, flags=re.M)
    (folder / "stage.toml").write_text(table)
    (folder / "kernel.cu").write_text(
        f"{variants(stage)[1]}\n#include <cstdlib>\n"
        "void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {\n"
        '  launch_one(rungs, std::getenv("VARIANT"), p, stream);\n}\n'
    )


def is_mutant_caught(mutant: Mutant, findings: list[Finding], exit_code: int) -> bool:
    """Whether a run with these findings and this exit code revealed the mutant."""
    if mutant.kind == "wrong result":
        return exit_code == WRONG_RESULT and not findings
    return any(f.kind == mutant.kind and any(mutant.line in text for text in texts_of(f)) for f in findings)


def texts_of(finding: Finding) -> list[str]:
    """The source lines that a finding names."""
    places = [finding.host_place.rpartition(":")[::2]]
    for party in (finding.who, finding.other):
        if party:
            places += [(party.file, str(party.line)), (party.kernel_file, str(party.kernel_line))]
            places.append((party.kernel_file, str(party.own_line)))
    return [
        Path(file).read_text().splitlines()[int(line) - 1]
        for file, line in places
        if line.isdigit() and int(line)
    ]
