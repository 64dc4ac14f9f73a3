#!/usr/bin/env python3
"""Measures rungs of HSTU attention and of its gradients beside other public implementations of both.

    python3 -m tools.measure.measure_hstu_peers --out results/h100 [--rounds 9] [--seconds 400]
        [--pass forward backward] [--rungs STAGE ...] [--peers triton recsys]
        [--generative-recommenders PATH] [--recsys-hstu PATH]

Writes ``hstu_peers.csv`` after each problem: one row per contender, with the columns of ``side_by_side.py``:
two times, watts and clocks, and the largest error of all outputs. The problems are the bench problems without
a bias. Times are those of the packages' own functions of q, k and v, with the outputs and workspaces that
they allocate and clear.

Contenders: the rungs; the Triton kernels of Meta's generative-recommenders, without and with TMA, for the
problems whose targets do not see each other; and the HSTU kernels for Hopper of NVIDIA's recsys-examples.
A peer that cannot be imported is left out. ``--generative-recommenders`` names a checkout, which need not be
installed, and ``--recsys-hstu`` a folder with ``hstu_attn_interface.py`` and its built extension, as
corelib/hstu/hopper of recsys-examples has them after ``setup.py build_ext --inplace``. Triton's autotuner
chooses for each problem and variant again. Needs a GPU of sm_90, nvcc and a Python with torch, pandas and
rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from ladder.errors import LadderError
from ladder.operations import HstuBackwardProblem, HstuProblem, operation_of
from ladder.operations.hstu.mask import CAUSAL
from ladder.operations.hstu.shapes import bench_problems
from ladder.stages import discover
from tools.measure.side_by_side import (
    Checker,
    Contender,
    Peer,
    Run,
    Rungs,
    Timer,
    add_options,
    measure_each,
    measured,
    of_function,
    version_of,
)

#: What is measured by default, beside the peers.
RUNGS = tuple(map(discover().today, ("h2", "h6", "h3b", "h3e")))
KINDS: dict[str, type[HstuProblem]] = {"forward": HstuProblem, "backward": HstuBackwardProblem}
#: The peers spend up to a third of a millisecond of the host's time per launch.
CYCLES_AHEAD = 6_000_000


def problems(passes: Sequence[str]) -> list[HstuProblem]:
    return [one for name in passes for one in bench_problems(KINDS[name]) if not one.bias_heads]


class RecsysHstu:
    """The kernels for Hopper of recsys-examples, by their interface."""

    name, module, package = "recsys-examples", "hstu_attn_interface", "hstu-hopper"

    def __init__(self, interface: ModuleType, version: str) -> None:
        self._attend, self._version = interface.hstu_attn_varlen_func, version

    def contenders(self, problem: HstuProblem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
        if problem.features <= {"masks"} and not problem.intervals:
            attend = partial(self._attend, **self._choices(problem, inputs))
            yield self.name, self._version, partial(of_function, attend, problem, inputs)

    def _choices(self, problem: HstuProblem, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **{
                name: inputs[name] for name in ("cu_seqlens_q", "cu_seqlens_k", "num_contexts", "num_targets")
            },
            "max_seqlen_q": max(problem.q_lens),
            "max_seqlen_k": max(problem.all_kv_lens),
            "target_group_size": problem.target_group_size,
            "window_size": problem.window,
            "alpha": problem.factor,
            "scaling_seqlen": problem.length,
        }


class TritonHstu:
    """The Triton kernels of generative-recommenders, without and with TMA."""

    name = package = "generative-recommenders"
    module = "generative_recommenders.ops.triton.triton_hstu_attention"

    def __init__(self, kernels: ModuleType, version: str) -> None:
        from triton import __version__ as triton_version
        from triton.runtime import Autotuner

        self._attend = kernels.triton_hstu_mha
        self._version = f"{version}, Triton {triton_version}".lstrip(", ")
        self._tuners = [one for one in vars(kernels).values() if isinstance(one, Autotuner)]
        #: What each autotuner has chosen for a problem. Their own keys leave out the mask and TMA.
        self._chosen: dict[tuple[str, bool], list[dict[Any, Any]]] = {}

    def contenders(self, problem: HstuProblem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
        if takes(problem):
            for name, tma in ((self.name, False), (f"{self.name}, TMA", True)):
                yield name, self._version, partial(self._run, tma, problem, inputs)

    def _run(self, tma: bool, problem: HstuProblem, inputs: Mapping[str, Any]) -> Run:
        chosen = self._chosen.setdefault((str(problem), tma), [{} for _ in self._tuners])

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self._attend(
                problem.length,
                problem.factor,
                q,
                k,
                v,
                inputs["cu_seqlens_q"],
                num_targets=inputs["num_targets"],
                contextual_seq_len=problem.contexts[0] if problem.contexts else 0,
                enable_tma=tma,
            )

        self._use(chosen)
        launch = of_function(attend, problem, inputs)

        def run() -> Sequence[Tensor]:
            self._use(chosen)
            return launch()

        return run

    def _use(self, chosen: Sequence[dict[Any, Any]]) -> None:
        for tuner, cache in zip(self._tuners, chosen, strict=True):
            tuner.cache = cache


def takes(problem: HstuProblem) -> bool:
    """Whether generative-recommenders computes the problem: as many queries as keys, a causal mask, as many
    contexts in each sequence, targets that see themselves alone, and o divided by the longest length.
    """
    return (
        problem.features <= {"masks"}
        and not problem.intervals
        and problem.window == CAUSAL
        and problem.q_lens == problem.all_kv_lens
        and len({*(problem.contexts or (0,))}) == 1
        and (not problem.targets or problem.target_group_size == 1)
        and problem.length == max(problem.q_lens)
    )


PEERS: dict[str, type[TritonHstu] | type[RecsysHstu]] = {"triton": TritonHstu, "recsys": RecsysHstu}


def chosen_peers(folders: Mapping[str, Path | None]) -> list[Peer]:
    """The peers of these names. One with a folder must be found in it; others are left out if they cannot be
    imported.
    """
    found: list[Peer] = []
    for name, folder in folders.items():
        kind = PEERS[name]
        if folder is not None:
            sys.path.insert(0, str(folder.resolve()))
        try:
            module = importlib.import_module(kind.module)
        except ImportError as failure:
            if folder is not None:
                raise LadderError(f"{kind.module} cannot be imported from {folder}: {failure}") from failure
            print(f"{kind.name} is left out: {failure}", file=sys.stderr)
            continue
        version = version_of(module, kind.package) or commit_of(Path(str(module.__file__)))
        found.append(kind(module, version).contenders)
    return found


def commit_of(path: Path) -> str:
    """The last commit that changed this file; "" if it is in no repository."""
    command = ["git", "-C", str(path.parent), "log", "-1", "--format=commit %h", "--", path.name]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, RUNGS)
    parser.add_argument("--peers", nargs="*", choices=[*PEERS], default=[*PEERS], metavar="PEER")
    parser.add_argument(
        "--generative-recommenders", dest="triton", type=Path, metavar="PATH", help="a checkout"
    )
    parser.add_argument(
        "--recsys-hstu", dest="recsys", type=Path, metavar="PATH", help="the built hopper folder"
    )
    options = parser.parse_args()
    began = time.monotonic()
    try:
        peers = chosen_peers({name: getattr(options, name) for name in options.peers})
        chosen = problems(options.passes)
        rungs = Rungs(options.rungs, chosen)
        timer = Timer.here(options.power, CYCLES_AHEAD)

        def rows_of(problem: HstuProblem) -> list[dict[str, Any]]:
            inputs = operation_of(problem).make_inputs(problem, "cuda")
            contenders = [rungs.contenders, *peers]
            return measured(problem, inputs, contenders, Checker(problem, inputs), timer, options.rounds)

        passed = measure_each(chosen, rows_of, options.out / "hstu_peers.csv", began, options.seconds)
    except LadderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
