"""Wrong rungs that once passed: a default of ``ladder check`` or of ``pytest stages/`` finds each of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ladder.operations import AnyProblem, get_operation
from ladder.run.evaluation import check_stage, evaluate_all, largest_constant
from ladder.stages import Stage, discover, include_directory

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("wrong_rungs.toml")


@dataclass(frozen=True)
class WrongRung:
    """A change and who finds it; see wrong_rungs.toml."""

    name: str
    stage: str
    text: str
    replacement: str
    found_by: str
    says: str = ""
    file: str = "kernel.cu"
    occurrence: int = 1
    head_dim: int = 64
    dtype: str = "f16"

    @property
    def original(self) -> Path:
        """The file that is changed."""
        return discover()[self.stage].source(self.file)

    def write(self, folder: Path) -> Stage:
        """Makes the stage in a new folder below this one, with its own copy of all headers if one of them is
        changed, and returns it.
        """
        original = discover()[self.stage]
        mine = folder / self.name
        shutil.copytree(
            original.path, mine, ignore=shutil.ignore_patterns("test_*", "README*", "__pycache__")
        )
        changed = mine / self.file
        if not changed.exists():
            shutil.copytree(include_directory(), mine, dirs_exist_ok=True)
        changed.write_text(self.changed(changed.read_text()))
        dims = (self.head_dim,) if self.head_dim in original.head_dims else original.head_dims
        dtypes = (self.dtype,) if self.dtype in original.dtypes else original.dtypes
        narrow = replace(original, name=self.name, path=mine, head_dims=dims, dtypes=dtypes)
        return narrow.narrowed(list(problems_of(narrow)))

    def changed(self, source: str) -> str:
        parts = source.split(self.text)
        if len(parts) <= self.occurrence:
            raise ValueError(
                f"{self.name}: {self.stage}/{self.file} has {len(parts) - 1} times {self.text!r}"
            )
        before, after = self.text.join(parts[: self.occurrence]), self.text.join(parts[self.occurrence :])
        return before + self.replacement + after

    def findings(self, stage: Stage) -> list[str]:
        """What the default that is to find it says."""
        if self.found_by == "check":
            return [f"{finding.kind}: {finding.message}" for finding in check_stage(stage)]
        evaluations = evaluate_all(stage, [*problems_of(stage)], backend="emulator", thoroughly=True)
        return [f"{found.problem}: {found.text}" for found in evaluations if not found.passed]


def problems_of(stage: Stage) -> Iterator[AnyProblem]:
    """All problems of ``pytest stages/`` that give results, but for random ones."""
    operation = get_operation(stage.computes)
    parts = operation.boundaries(stage.dtypes, stage.head_dims).values()
    sizes = (stage.dtypes, stage.head_dims)
    beyond = operation.beyond(largest_constant(stage), *sizes)
    for problems in (*parts, operation.large(*sizes), beyond, operation.matrix(*sizes)):
        yield from filter(stage.suits, problems)


def wrong_rungs() -> list[WrongRung]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    today = discover().today
    return [
        WrongRung(name, today(entry.pop("stage")), replacement=entry.pop("with"), **entry)
        for name, entry in table.items()
    ]


#: One of each kind; the others with ``-m full``.
QUICK = (
    "v8_k_released_before_its_product_is_complete",
    "v8_no_fence_barrier_init",
    "b3_the_turn_is_not_acquired",
    "b2_dq_without_atomics",
    "v7_o_rescaled_before_its_product_is_complete",
    "v8_o_rounded_for_each_tile",
)


@pytest.mark.parametrize(
    "rung",
    [
        pytest.param(rung, id=rung.name, marks=() if rung.name in QUICK else pytest.mark.full)
        for rung in wrong_rungs()
    ],
)
def test_it_is_found(rung: WrongRung, tmp_path: Path) -> None:
    found = rung.findings(rung.write(tmp_path))
    assert any(rung.says in text for text in found), found


@pytest.mark.parametrize("rung", wrong_rungs(), ids=lambda rung: rung.name)
def test_its_change_fits_the_rung_of_today(rung: WrongRung) -> None:
    rung.changed(rung.original.read_text())


def test_the_quick_ones_are_there() -> None:
    assert {*QUICK} <= {rung.name for rung in wrong_rungs()}
