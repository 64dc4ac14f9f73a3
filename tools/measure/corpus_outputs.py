"""What programs of the corpus print on a GPU: the reference for those that do not check their own results.

``corpus/outputs.csv`` has one row per program: its digest, the GPU, and the lines that do not depend on the
clock. Words must be equal, and numbers within :data:`TOLERANCE`, since the last bits of approximate functions
and the order of atomic additions differ. Error bars are not compared.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

OUTPUTS = Path(__file__).parents[2] / "results" / "corpus" / "outputs.csv"
TOLERANCE = 1e-4
#: A longer output is not kept: it would be data, not a result.
LONGEST = 4000
_OF_THE_CLOCK = re.compile(
    r"time|second|elapsed|duration|bandwidth|throughput|speed|performance|\brate\b|latency|clock|memory"
    r"|\b\d[\d.e+-]* ?(?:s|ms|us|ns)\b|\b[GMT](?:i?B|FLOPS?|Hz|pixels?)\b|/s\b|/sec\b|fps|device|GPU",
    re.I,
)
#: Of LeetCUDA's scripts: a line of a kernel's first values, and what parts kernels of different inputs.
_OUT = re.compile(r"(out_\S+): (\[[^]]*\]|\S+)")
_SECTION = re.compile(r"^-{40,}$", re.MULTILINE)
#: Sums in half precision are rounded at each addition; TF32 has as many bits for the values themselves.
_HALF, _SINGLE = 3e-2, 1e-3
#: So many values tell how great all are.
_MANY = 8
#: The standard error of a Monte Carlo estimate, ``1.5 +- 0.1``. Programs compute it as the root of a
#: difference of squares, which is rounding noise (or nan) if it is small beside the estimate.
_ERROR_BAR = re.compile(r"\+- *\S+")
_TOKEN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[^\s\d]+", re.I)


@dataclass(frozen=True)
class Output:
    """The lasting lines of a program's output on ``gpu``; ``program`` is its digest."""

    repository: str
    path: str
    program: str
    gpu: str
    text: str


def lasting(output: str) -> str:
    """The lines of an output that say nothing of the clock."""
    lines = (" ".join(line.split()) for line in output.splitlines())
    return "\n".join(line for line in lines if line and not _OF_THE_CLOCK.search(line))


def repeated(output: str, other: str) -> str:
    """The lasting lines that two runs share; none if they print different numbers of lines."""
    pairs = list(zip_longest(lasting(output).splitlines(), lasting(other).splitlines()))
    if any(None in pair for pair in pairs):
        return ""
    return "\n".join(one for one, again in pairs if _same(one, again))


def tells(text: str) -> bool:
    """Whether lasting lines say anything of a result: they have a number, and are short enough to be kept."""
    return len(text) <= LONGEST and any(_number(token) is not None for token in _TOKEN.findall(text))


def agree(text: str, reference: str) -> bool:
    """Whether the text has the reference's lines, in their order: the same words, and numbers within the
    tolerance.
    """
    lines = iter(text.splitlines())
    return all(any(_same(line, wanted) for line in lines) for wanted in reference.splitlines())


def _same(line: str, wanted: str) -> bool:
    ours, theirs = (_TOKEN.findall(_ERROR_BAR.sub("+-", text)) for text in (line, wanted))
    return len(ours) == len(theirs) and all(map(_alike, ours, theirs))


def beside_torch(output: str) -> tuple[str, str] | None:
    """What LeetCUDA's scripts print: values of each kernel, then torch's, ``out_f32_th``, in sections.

    Returns the outcome and its reason; None if the output has no such lines.
    """
    compared = 0
    for section in _SECTION.split(output):
        found = [(name, _values(values)) for name, values in _OUT.findall(section)]
        torch = [(name, values) for name, values in found if "_th" in name]
        for name, values in found if torch else ():
            compared += "_th" not in name
            # Some kernels' names do not say their type; torch's does.
            if not any(_near(values, wanted, _tolerance(name + of_torch)) for of_torch, wanted in torch):
                return "wrong", f"{name} is not what torch has"
    return ("right", f"{compared} outputs are torch's") if compared else None


def _tolerance(names: str) -> float:
    return _HALF if re.search(r"f16|tf32", names) else _SINGLE


def _values(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d[\d.]*(?:e[-+]?\d+)?|nan|-?inf", text)]


def _near(values: list[float], wanted: list[float], tolerance: float) -> bool:
    """Whether values are within the tolerance, relative to those above 1, of many below 1 to the greatest."""
    greatest = max(map(abs, wanted)) if len(wanted) >= _MANY else math.inf
    pairs = zip(values, wanted, strict=False)
    return len(values) == len(wanted) and all(
        abs(one - other) <= tolerance * min(max(1, abs(other)), greatest) for one, other in pairs
    )


def _alike(one: str, other: str) -> bool:
    first, second = _number(one), _number(other)
    if first is None or second is None:
        return one == other
    both_nan = math.isnan(first) and math.isnan(second)
    return both_nan or math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=1e-30)


def _number(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None


def read(table: Path = OUTPUTS) -> Mapping[tuple[str, str], Output]:
    """The outputs by repository and path; none if there is no table."""
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {(row["repository"], row["path"]): Output(**row) for row in csv.DictReader(file)}


def write(outputs: Iterable[Output], table: Path = OUTPUTS) -> None:
    """Replaces the table, sorted by repository and path."""
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("repository", "path", "program", "gpu", "text"))
        for output in sorted(outputs, key=lambda output: (output.repository, output.path)):
            writer.writerow((output.repository, output.path, output.program, output.gpu, output.text))
