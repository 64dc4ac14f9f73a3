"""The corpus of planted faults and clean kernels: what is expected of each case, and what was found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ladder.build import Target, build_program
from ladder.emulate import run_program
from ladder.findings import Finding

CORPUS = Path(__file__).parent / "corpus"
ARCH = "sm_80"
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
    """Of each case with a mark ``fault(case): kind`` on its line."""
    found = {}
    for number, line in enumerate(source.read_text().splitlines(), 1):
        for case, kind in _MARK.findall(line):
            assert case not in found, f"{case} is marked twice"
            found[case] = Expected(kind.strip(), number)
    return found


def build_corpus(source: Path) -> Path:
    """The program that runs the cases of one file."""
    return build_program([source], Target("emulator", ARCH), ["-Xcompiler", "-g1", f"-I{CORPUS}"])


def run_case(program: Path, case: str) -> list[Finding]:
    return list(run_program(program, [case], ARCH, check=True).findings)


def lines_of(finding: Finding) -> set[int]:
    """The lines that a finding names, of either party."""
    lines = {
        line for party in (finding.who, finding.other) if party for line in (party.line, party.kernel_line)
    }
    if finding.host_place:
        lines.add(int(finding.host_place.rpartition(":")[2]))
    return lines


def is_caught(expected: Expected, findings: list[Finding]) -> bool:
    return any(f.kind == expected.kind and expected.line in lines_of(f) for f in findings)
