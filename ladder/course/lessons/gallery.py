"""The named pictures that ``ladder plot`` and the lessons draw."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ladder.errors import LadderError
from ladder.operations import Problem, hstu_mask

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from ladder.counts.banks import Explanation

#: The line whose tile is shown before and after the swizzle: it loads K for the tensor cores.
_TILE_LINE = "ldmatrix_x4(k_rmem"


def layout(head_dim: int = 64) -> Figure:
    """Draws a tile of K by bank, before and after the swizzle. Raises :class:`LadderError`."""
    from ladder.show.plots import layout_picture

    return layout_picture(*explained_layout(head_dim), row_bytes=2 * head_dim)


def explained_layout(head_dim: int) -> tuple[Explanation, Explanation]:
    """Explains the loads of K in v2 and v3."""
    from ladder.counts.banks import explain
    from ladder.course.lessons.listing import line_of

    problem = Problem(1, 1, 64, 64, head_dim)
    plain, swizzled = (explain(f"{stage}:{line_of(stage, _TILE_LINE)}", problem) for stage in ("v2", "v3"))
    return plain, swizzled


def costs(stages: Sequence[str] | None = None, problem: Problem | None = None, count: int = 6) -> Figure:
    """Draws the costliest lines of ``stages`` (default: all). Raises :class:`LadderError`."""
    from ladder.counts import annotate, line_table
    from ladder.course.lessons.listing import line_text
    from ladder.operations import DEFAULT_OPERATION
    from ladder.run.evaluation import default_problem, evaluate
    from ladder.show.plots import costs_picture
    from ladder.stages import discover

    rungs = discover()
    names = stages or [stage.name for stage in rungs.computing(DEFAULT_OPERATION)]
    found = {
        rungs.today(name): evaluate(name, problem or default_problem(name), backend="emulator")
        for name in names
    }
    annotated = {name: annotate(line_table(one.execution.launches)) for name, one in found.items()}
    return costs_picture(annotated, line_text, count)


def comparison() -> Figure:
    """Draws the wavefronts and conflicts of all rungs on the default problem."""
    from ladder.operations import DEFAULT_PROBLEM
    from ladder.run.evaluation import compare
    from ladder.show.plots import comparison_picture

    return comparison_picture(compare(DEFAULT_PROBLEM, backend="emulator"), str(DEFAULT_PROBLEM))


def walk(is_causal: bool = False) -> Figure:
    """Draws the order of tiles in FlashAttention-1 and -2."""
    from dataclasses import replace

    from ladder.course.lessons.walk import ARRIVALS, WALK_PROBLEM, measure_walk
    from ladder.show.plots import walk_picture
    from ladder.stages import discover

    problem = replace(WALK_PROBLEM, is_causal=is_causal)
    return walk_picture({discover().today(rung): measure_walk(rung, problem) for rung in ARRIVALS}, problem)


def fragments() -> Figure:
    """Draws which lane holds which element."""
    from ladder.course.lessons.fragments import measure_fragments
    from ladder.show.plots import fragments_picture

    return fragments_picture(measure_fragments())


def instructions(stages: Sequence[str] = ("v4", "v5", "v6")) -> Figure:
    """Draws each rung's instructions per score at d = 64."""
    from ladder.course.lessons.instructions import instructions_a_score
    from ladder.course.lessons.questions import MANY_TILES
    from ladder.show.plots import instructions_picture

    title = f"PTX instructions of a lane for each score, {MANY_TILES}"
    return instructions_picture(instructions_a_score(stages, MANY_TILES), title)


def buffers() -> Figure:
    """Draws the contents of v5's buffers over time."""
    from ladder.show.plots import buffers_picture

    return buffers_picture(2, 8)


def memory(stage: str = "v5", head_dims: Sequence[int] = (64, 128)) -> Figure:
    """Draws what lies where in the shared memory of a block of v5 or v8."""
    from ladder.course.lessons.memory import memory_map
    from ladder.show.plots import memory_picture
    from ladder.stages import discover

    return memory_picture({f"{discover().today(stage)}, d = {d}": memory_map(stage, d) for d in head_dims})


def softmax() -> Figure:
    """Draws the online softmax of one row."""
    from ladder.course.lessons.softmax import example, measure_softmax
    from ladder.show.plots import softmax_picture

    return softmax_picture(measure_softmax(*example()))


def time(stages: Sequence[str] = ("v2", "v6e", "v12c"), gpu: str = "h200") -> Figure:
    """Draws the least time of each unit for these rungs, at d = 64 and 4,096 tokens."""
    from ladder.counts.time import bound_of, count_stage, load_gpu
    from ladder.show.plots import bound_picture
    from ladder.stages import discover

    problem, chosen = Problem(4, 16, 4096, 4096, 64, dtype="bf16"), load_gpu(gpu)
    rungs = discover()
    return bound_picture(
        {
            rungs.today(name): bound_of(chosen, count_stage(rungs[name], problem, chosen).launches)
            for name in stages
        }
    )


#: One mask of each form, all of 24 tokens.
_MASKS: Mapping[str, Mapping[str, Any]] = {
    "causal": {},
    "no mask": {"window": (-1, -1)},
    "window of 5 before": {"window": (5, 0)},
    "window of 5 before, 2 after": {"window": (5, 2)},
    "window of 2 after": {"window": (-1, 2)},
    "3 contexts": {"contexts": 3},
    "9 targets": {"targets": 9},
    "9 targets in groups of 4": {"targets": 9, "target_group_size": 4},
    "3 contexts, 9 targets by 4": {"contexts": 3, "targets": 9, "target_group_size": 4},
    "the last 10 queries": {"queries": 10},
    "the last 10, 6 of them targets": {"queries": 10, "targets": 6},
    "intervals": {"intervals": True},
}


def mask(tile: tuple[int, int] = (4, 4), **choices: Any) -> Figure:
    """Draws the mask of ``choices``, arguments of :func:`ladder.hstu_mask`, and the tiles that it needs.

    Without choices, draws one mask of each form. Raises :class:`InvalidProblem`.
    """
    from ladder.show.plots import mask_picture

    if not choices:
        return mask_picture({title: _mask(**form) for title, form in _MASKS.items()}, tile)
    title = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in choices.items())
    return mask_picture({title: _mask(**choices)}, tile)


def _mask(
    queries: int | None = None, keys: int | None = None, intervals: bool = False, **choices: Any
) -> Tensor:
    """Calls :func:`ladder.hstu_mask`, with 24 tokens by default and example intervals if asked for."""
    import torch

    keys = keys or max(24, queries or 0)
    queries = queries or keys
    position = torch.arange(queries)
    ends = torch.stack([position // 3, position // 2 + 4, (position + 8).clamp(max=keys)])
    return hstu_mask(queries, keys, intervals=ends.int() if intervals else None, **choices)


@dataclass(frozen=True)
class Named:
    """A picture that can be requested by name."""

    text: str
    draw: Callable[..., Figure]


PICTURES = {
    "buffers": Named("which tile is in which buffer of v5", buffers),
    "comparison": Named("wavefronts and bank conflicts of each rung", comparison),
    "costs": Named("the lines of each rung that cost the most", costs),
    "fragments": Named("which lane holds which element after ldmatrix and mma", fragments),
    "instructions": Named("instructions for each score, v4 to v6, by kind", instructions),
    "layout": Named("a tile in shared memory by bank, before and after the swizzle", layout),
    "mask": Named("masks of HSTU attention, and the tiles that each needs", mask),
    "memory": Named("what lies where in the shared memory of a block of v5", memory),
    "softmax": Named("online softmax of one row, tile by tile", softmax),
    "time": Named("the least time of each unit of an H200 for v2, v6e and v12c", time),
    "walk": Named("the order of tiles in FlashAttention-1 and FlashAttention-2", walk),
    "walk-causal": Named("the same with a causal mask", lambda: walk(is_causal=True)),
}


def picture(name: str, **choices: Any) -> Figure:
    """Draws the named picture; ``choices`` are arguments of the function that draws it.

    Raises :class:`LadderError`.
    """
    if name not in PICTURES:
        near = difflib.get_close_matches(name, PICTURES, n=1)
        raise LadderError(
            f"there is no picture {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            f"Pictures: {', '.join(PICTURES)}",
        )
    return PICTURES[name].draw(**choices)
