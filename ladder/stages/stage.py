"""A rung: what it takes, its options, and the virtual GPUs that it runs on."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TypeVar

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import DEFAULT_OPERATION, DTYPES, USUAL_HEAD_DIMS, AnyProblem
from ladder.stages.places import include_directory, root

P = TypeVar("P", bound=AnyProblem)
OptionValue = int | str | bool

#: The virtual GPUs of the emulator.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a")
DEFAULT_ARCH = "sm_80"
#: Those whose counts were never compared with a GPU's: they follow from the program and from CUDA's manual.
BY_THE_MANUAL = ("sm_100a",)
#: Of ladder/launch.h: which kernels are compiled.
_HEAD_DIMS, _DTYPES = "LADDER_HEAD_DIMS", "LADDER_DTYPES"


def require_arch(arch: str, named: str = "arch") -> None:
    """Raises :class:`InvalidProblem` unless ``arch`` is a virtual GPU; ``named`` is the value's source."""
    if arch not in ARCHITECTURES:
        raise InvalidProblem(f"{named} {arch!r} is none of {', '.join(ARCHITECTURES)}")


@dataclass(frozen=True)
class Stage:
    """One rung, as its stage.toml describes it."""

    name: str
    path: Path
    title: str
    idea: str
    before: str | None
    min_compute_capability: tuple[int, int]
    dtypes: tuple[str, ...]
    #: Empty if the problem has no head dim.
    head_dims: tuple[int, ...] = ()
    #: The operation.
    computes: str = DEFAULT_OPERATION
    options: Mapping[str, tuple[OptionValue, ...]] = field(default_factory=dict)
    #: Features of problems (:attr:`ladder.operations.AnyProblem.features`) that it supports, and that it
    #: requires.
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    #: The most queries of a sequence, where a grid has no more blocks; 0 is no limit.
    most_rows: int = 0
    #: ``sm_90a`` if it uses features that only that architecture has.
    only_arch: str | None = None
    #: Whether its outputs are bit-identical for every order of blocks and warps.
    deterministic: bool = True
    #: Whether its speed on a GPU has been measured. If not, it must be chosen by name.
    timed: bool = True

    @property
    def is_variant(self) -> bool:
        """Whether it needs a feature of the problem, or has head dims besides the usual ones, and so stands
        beside the ladder whose rung it continues.
        """
        return bool(self.needs) or not {*self.head_dims} <= {*USUAL_HEAD_DIMS}

    @property
    def number(self) -> str:
        """The first part of a rung's name, which names it, too: ``v3`` of ``v3_mine``."""
        return self.name.partition("_")[0]

    @property
    def is_own(self) -> bool:
        """Whether it is a rung of the project: of the main ladder, or of one in a folder of its own. Rungs by
        the manual alone do not count: they have no lessons, speeds or profiles.
        """
        return self.path.is_relative_to(root()) and not self.is_by_the_manual

    @property
    def is_by_the_manual(self) -> bool:
        """Whether it is for a GPU whose counts were never compared: see BY_THE_MANUAL."""
        return self.only_arch in BY_THE_MANUAL

    @property
    def kernel(self) -> Path:
        return self.path / "kernel.cu"

    def source(self, file: str) -> Path:
        """Finds a header like the compiler: in the rung's folder, or else among the shared ones."""
        own = self.path / file
        return own if own.is_file() else include_directory() / file

    @property
    def default_arch(self) -> str:
        """The virtual GPU to count on by default: its only one, or the larger of sm_80 and its minimum."""
        if self.only_arch:
            return self.only_arch
        minimum = "sm_{}{}".format(*self.min_compute_capability)
        return max(DEFAULT_ARCH, minimum, key=arch_number)

    def arch(self, wanted: str | None) -> str:
        """The architecture to build for in order to run on ``wanted``.

        Raises :class:`UnsupportedProblem` if it cannot run there.
        """
        if wanted is None:
            return self.default_arch
        if self.only_arch:
            if arch_number(wanted) != arch_number(self.only_arch):
                raise UnsupportedProblem(f"{self.name} runs on {self.only_arch} alone, not on {wanted}")
            return self.only_arch
        major, minor = self.min_compute_capability
        if arch_number(wanted) < 10 * major + minor:
            raise UnsupportedProblem(
                f"{self.name} needs compute capability {major}.{minor} or higher, not {wanted}"
            )
        return wanted

    def accept(self, problem: P) -> P:
        """Returns the problem, with the rung's first dtype if it does not specify one.

        Raises :class:`UnsupportedProblem`, saying what the rung supports.
        """
        if problem.operation != self.computes:
            raise UnsupportedProblem(f"{self.name} computes {self.computes}, not {problem.operation}")
        if problem.dtype is None:
            problem = replace(problem, dtype=self.dtypes[0])  # type: ignore[type-var]
        if problem.dtype not in self.dtypes:
            raise UnsupportedProblem(f"{self.name} takes {listed(self.dtypes)}, not {problem.dtype}")
        head_dim = getattr(problem, "head_dim", None)
        if head_dim is not None and head_dim not in self.head_dims:
            raise UnsupportedProblem(f"{self.name} takes d = {listed(self.head_dims)}, not {head_dim}")
        rows = max((getattr(problem, "q_len", 0), *(getattr(problem, "q_lens", None) or ())))
        if self.most_rows and rows > self.most_rows:
            raise UnsupportedProblem(f"{self.name} takes at most {self.most_rows:,} rows, not {rows:,}")
        self._check_features(problem.features)
        return problem

    def suits(self, problem: AnyProblem) -> bool:
        """Whether :meth:`accept` accepts it."""
        try:
            self.accept(problem)
        except UnsupportedProblem:
            return False
        return True

    def narrowed(self, problems: Sequence[AnyProblem]) -> Stage:
        """The rung with options that compile only what these problems need, in a fraction of the time; see
        ladder/launch.h. Raises :class:`UnsupportedProblem`.
        """
        needed = {name: (value,) for name, value in self.needed_options(problems).items()}
        return replace(self, options={**self.options, **needed})

    def needed_options(self, problems: Sequence[AnyProblem]) -> dict[str, OptionValue]:
        """The options of :meth:`narrowed`; none if it is narrowed already."""
        if _HEAD_DIMS in self.options:
            return {}
        accepted = [self.accept(problem) for problem in problems]
        columns = [_columns(getattr(problem, "head_dim", 0)) for problem in accepted]
        dtypes = {DTYPES.index(problem.dtype or DTYPES[0]) for problem in accepted}
        return {_HEAD_DIMS: reduce(operator.or_, columns, 0), _DTYPES: sum(1 << dtype for dtype in dtypes)}

    def _check_features(self, features: frozenset[str]) -> None:
        refused = sorted(features - {*self.takes, *self.needs})
        if refused:
            raise UnsupportedProblem(f"{self.name} takes no {listed(refused)}")
        missing = sorted({*self.needs} - features)
        if missing:
            raise UnsupportedProblem(f"{self.name} needs {listed(missing)}, which the problem does not have")

    def chosen_options(self, wanted: Mapping[str, str]) -> dict[str, OptionValue]:
        """Every option with its value: the one that ``wanted`` gives as text, or the default."""
        chosen = {name: values[0] for name, values in self.options.items()}
        for name, text in wanted.items():
            if name not in self.options:
                raise UnsupportedProblem(
                    f"{self.name} has no option {name}; it has {listed(self.options) or 'none'}"
                )
            matching = [value for value in self.options[name] if option_text(value) == str(text)]
            if not matching:
                values = listed(option_text(value) for value in self.options[name])
                raise UnsupportedProblem(f"{self.name}: option {name} is {values}, not {text}")
            chosen[name] = matching[0]
        return chosen


def _columns(head_dim: int) -> int:
    """The bits of a head dim in :data:`_HEAD_DIMS`: itself, or the columns of the tiles that hold it."""
    return head_dim if head_dim in (0, *USUAL_HEAD_DIMS) else -(-head_dim // 64) * 64


def format_options(options: Mapping[str, object]) -> str:
    """Formats options as ``NAME=VALUE,...``."""
    return ",".join(f"{name}={value}" for name, value in options.items())


def parse_options(text: str) -> dict[str, str]:
    """Parses :func:`format_options`'s format. Raises :class:`InvalidProblem` if an option has no value."""
    pairs = [option.partition("=") for option in text.split(",") if option]
    for name, equals, _ in pairs:
        if not name:
            raise InvalidProblem(f"option {text!r} has no name", "It is NAME=VALUE.")
        if not equals:
            raise InvalidProblem(f"option {name} has no value", "It is NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def arch_number(arch: str) -> int:
    """The architecture's number: 80 for ``sm_80``, 90 for both ``sm_90`` and ``sm_90a``."""
    return int(arch.removeprefix("sm_").removesuffix("a"))


def option_text(value: OptionValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)
