"""What a backend is, and what both do alike: load an extension, make NaN-filled outputs, call it."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ladder.build import Target
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.emulator import Launch
    from ladder.stages import Stage
    from ladder.timing import Timing


@dataclass(frozen=True)
class Execution:
    """Outputs of one run, o (B, H, N, d) and lse (B, H, N), with what was counted or timed."""

    o: Tensor
    lse: Tensor
    counters: Mapping[str, int | None] = field(default_factory=dict)
    timing: Timing | None = None
    launches: tuple[Launch, ...] = ()

    @property
    def time_ms(self) -> float | None:
        """The median, None where nothing was timed."""
        return None if self.timing is None else self.timing.median_ms


class Backend(ABC):
    """Runs extensions built for its target."""

    name: str
    device: str

    @abstractmethod
    def target(self, stage: Stage, arch: str | None) -> Target:
        """What to build the stage for; ``arch`` is what the user asked for, if anything.

        Raises :class:`InvalidProblem` where no stage can have it, :class:`UnsupportedProblem` where this one
        cannot.
        """

    @abstractmethod
    def execute(
        self,
        extension: Path,
        target: Target,
        problem: Problem,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        timed: bool = False,
    ) -> Execution:
        """Runs the extension on contiguous tensors of this backend's device.

        Raises :class:`UnsupportedProblem` or :class:`ExecutionError`.
        """


def make_outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    """o like q and lse (B, H, N) in fp32, full of NaN, so that what a kernel does not write is seen."""
    import torch

    return torch.full_like(q, math.nan), torch.full(
        q.shape[:3], math.nan, dtype=torch.float32, device=q.device
    )


@functools.cache
def _load(extension: Path) -> ModuleType:
    # pybind11 keeps one module for each full name; only the part after the last dot names the init function.
    name = f"{extension.parent.name}.ladder_stage"
    loader = importlib.machinery.ExtensionFileLoader(name, str(extension))
    spec = importlib.util.spec_from_file_location(name, extension, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def call(
    extension: Path, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, stream: int
) -> None:
    """Calls the extension's ``forward`` once.

    What the stage refuses becomes :class:`UnsupportedProblem`, what CUDA refuses :class:`ExecutionError`.
    """
    try:
        forward = _load(extension).forward
    except (ImportError, AttributeError) as error:
        raise ExecutionError(f"{extension} cannot be loaded: {error}") from error
    pointers = [tensor.data_ptr() for tensor in (q, k, v, o, lse)]
    sizes = [
        problem.batch,
        problem.heads,
        problem.num_kv_heads,
        problem.q_len,
        problem.kv_len,
        problem.head_dim,
    ]
    try:
        forward(*pointers, *sizes, problem.dtype, problem.is_causal, problem.softmax_scale, stream)
    except ValueError as error:
        raise UnsupportedProblem(str(error)) from error
    except RuntimeError as error:
        raise ExecutionError(str(error)) from error
