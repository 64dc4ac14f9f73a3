"""GPUs by name or by a file of the user's: how much each unit does per clock cycle, with the source."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ladder.errors import LadderError
from ladder.stages import ARCHITECTURES, Stage, arch_number

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parent / "rates"
_EXAMPLE = _FOLDER / "h100.toml"
#: What a GPU's file has besides its rates, and the types.
_FACTS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "arch": (str,),
    "multiprocessors": (int,),
    "clock_mhz": (int, float),
    "dram_gb_per_s": (int, float),
    "l2_mb": (int, float),
    "source": (str,),
}


@dataclass(frozen=True)
class Rate:
    """What one multiprocessor does per clock cycle, at most, and who says so."""

    per_clock: float
    source: str


@dataclass(frozen=True)
class Gpu:
    """A GPU: its multiprocessors, the highest SM clock, and the rates of its units."""

    name: str
    arch: str
    multiprocessors: int
    clock_mhz: float
    dram_gb_per_s: float
    l2_mb: float
    source: str
    rates: Mapping[str, Rate]
    #: The parameters of the model of time by name, in clock cycles; none if the GPU's file has none.
    model: Mapping[str, float] = field(default_factory=dict)

    def rate(self, kind: str) -> Rate | None:
        """The rate of a kind of work; None if the GPU's file has none.

        A product's kind is its instruction, the type of its sums and the type of its inputs: ``mma f32 f16``.
        Where there is no such rate it is that of ``f32 f16``, then that of ``f16``.
        """
        words = kind.split()
        names = (" ".join(words[first:]) for first in range(len(words)))
        return next((self.rates[name] for name in names if name in self.rates), None)

    def arch_of(self, stage: Stage | None = None) -> str:
        """The virtual GPU that counts a stage, or a program, for this one: its own architecture, or the
        nearest before it.

        Raises :class:`UnsupportedProblem` if the stage cannot run on this GPU.
        """
        number = arch_number(self.arch)
        known = {
            arch_number(arch): arch
            for arch in ARCHITECTURES
            if arch_number(arch) == number or (arch_number(arch) < number and not arch.endswith("a"))
        }
        if stage is None:
            return known[max(known)]
        return stage.arch(f"sm_{number if stage.only_arch else max(known)}")


def load_gpu(name: str) -> Gpu:
    """The GPU of this name, or of this TOML file. Raises :class:`LadderError`."""
    return _known(name.lower()) if name.lower() in gpu_names() else _read(Path(name))


@cache
def _known(name: str) -> Gpu:
    return _read(_FOLDER / f"{name}.toml")


@cache
def gpu_names() -> list[str]:
    """The GPUs that can be named."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def _read(path: Path) -> Gpu:
    if path.suffix != ".toml":
        near = difflib.get_close_matches(path.name.lower(), gpu_names(), 1, 0.4)
        raise LadderError(
            f"no GPU {str(path)!r}; known are {', '.join(gpu_names())}",
            (f"Did you mean {near[0]}? " if near else "")
            + f"A file of your own works, too: --gpu mine.toml, made after {_EXAMPLE}",
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LadderError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LadderError(f"{path} is not TOML: {error}") from None
    return _gpu(path, table)


def require_clock(clock_mhz: float) -> float:
    """Raises :class:`LadderError` unless the clock is a positive number."""
    if not 0 < clock_mhz < 1e5:
        raise LadderError(
            f"a clock of {clock_mhz:g} MHz is none", "For example --clock 1755, as nvidia-smi shows it."
        )
    return clock_mhz


def _gpu(path: Path, table: Mapping[str, Any]) -> Gpu:
    def wrong(what: str) -> LadderError:
        return LadderError(f"{path}: {what}", f"{_EXAMPLE} is an example.")

    for fact, types in _FACTS.items():
        if not isinstance(table.get(fact), types) or isinstance(table[fact], bool):
            raise wrong(f"{fact} is {table.get(fact)!r}, not {' or '.join(one.__name__ for one in types)}")
    for fact in ("multiprocessors", "clock_mhz", "dram_gb_per_s"):
        if not table[fact] > 0:
            raise wrong(f"{fact} is {table[fact]}; it must be positive")
    rates = {}
    for name, rate in dict(table.get("rates", {})).items():
        try:
            rates[name] = Rate(float(rate["per_clock"]), str(rate["source"]))
        except (KeyError, TypeError, ValueError):
            raise wrong(f"the rate {name!r} has no per_clock and source") from None
        if not rates[name].per_clock > 0:
            raise wrong(f"the rate {name!r} is {rates[name].per_clock:g}; it must be positive")
    model = {}
    for name, parameter in dict(table.get("model", {})).items():
        try:
            model[name] = float(parameter["value"])
            str(parameter["source"])
        except (KeyError, TypeError, ValueError):
            raise wrong(f"the parameter {name!r} of the model has no value and source") from None
    for needed in ("issue", "shared"):
        if needed not in rates:
            raise wrong(f"it has no rate {needed!r}")
    try:
        arch_number(table["arch"])
    except ValueError:
        raise wrong(f"arch is {table['arch']!r}; it is like sm_90") from None
    return Gpu(**{fact: table[fact] for fact in _FACTS}, rates=rates, model=model)
