"""Inputs whose output reveals where each element went, which tells wrong places from wrong values.

Random inputs show only that a layout is wrong; these show how.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ladder.common.wording import said
from ladder.common.words import numbers
from ladder.compile import build
from ladder.errors import LadderError
from ladder.operations import TORCH_DTYPES, Problem, operation_of
from ladder.run.backends import get_backend
from ladder.stages import Stage

_QUERIES = 16
_SHIFT = 8  # so that swapping the halves of a 16 x 16 fragment changes the result
_LOGIT = 64.0  # of a query and its key; all others are 0
_SHOWN = 4


def probe(stage: Stage, problem: Problem, *, keys: bool) -> list[str]:
    """Describes what the stage does wrong on probes of one head and 16 queries; empty if nothing.

    With ``keys``, query i matches only key i and v is the identity, so row i of o holds the weights that
    query i gives to the keys; this is not valid under a softcap. Always, all rows of v hold 1, 2, 3, ..., and
    so should each row of o.
    """
    d = problem.head_dim
    softcap = None if problem.softcap is None else _LOGIT
    one_head = Problem(1, 1, _QUERIES, d, d, dtype=problem.dtype, scale=1.0, softcap=softcap)
    numbered = torch.arange(1, d + 1, dtype=torch.float32).repeat(d, 1)
    try:
        weights = _keys_found(_run(stage, one_head, torch.eye(d))) if keys else []
        return weights + _columns_found(_run(stage, one_head, numbered))
    except LadderError:
        return []  # the problem itself has already reported this


def _run(stage: Stage, problem: Problem, values: Tensor) -> Tensor:
    """Runs the stage on unit vectors q and k and these rows of v; returns o (16, d)."""
    assert problem.dtype is not None
    unit = torch.eye(problem.head_dim).roll(_SHIFT, 1)
    backend = get_backend("emulator")
    target = backend.target(stage, None)
    extension = build(stage, target, stage.chosen_options({}))
    dtype = TORCH_DTYPES[problem.dtype]
    tensors = {"q": unit[:_QUERIES] * _LOGIT, "k": unit, "v": values}
    probes = {name: tensor[None, None].to(dtype).contiguous() for name, tensor in tensors.items()}
    inputs = {**operation_of(problem).make_inputs(problem), **probes}
    with backend.runner(extension, target) as runner:
        return runner.run(problem, inputs).outputs["o"][0, 0].double()


def _keys_found(weights: Tensor) -> list[str]:
    keys = weights.shape[1]
    found = [[j for j in range(keys) if float(row[j]) > 0.5 / keys] for row in weights]
    wrong = [i for i, seen in enumerate(found) if seen != [i]]
    if not wrong:
        return []
    parts = []
    right = [i for i in range(len(found)) if i not in wrong]
    if right:
        parts.append(said("queries {which} do so", which=numbers(right)))
    for i in wrong[:_SHOWN]:
        if len(found[i]) == keys:
            parts.append(said("query {i} finds all alike", i=i))
        elif len(found[i]) == 1:
            parts.append(said("query {i} finds key {which}", i=i, which=found[i][0]))
        elif found[i]:
            parts.append(said("query {i} finds keys {which}", i=i, which=numbers(found[i])))
        else:
            parts.append(said("query {i} finds none", i=i))
    what = ", ".join(parts) + (", ..." if len(wrong) > _SHOWN else "")
    return [said("On inputs where query i should find key i and no other, {what}.", what=what)]


def _columns_found(o: Tensor) -> list[str]:
    numbered = torch.arange(1, o.shape[1] + 1, dtype=o.dtype)
    factor = (o * numbered).sum(1, keepdim=True) / (numbered * numbered).sum()
    if bool(((o - factor * numbered).abs() <= 0.01 * (factor * numbered).abs()).all()):
        return []  # every column is in its place: a row that is wrong by a factor is not misplaced
    found = [_place(column) for column in o.T]
    wrong = [c for c, source in enumerate(found) if source != c]
    if not wrong:
        return []
    parts = []
    right = [c for c in range(len(found)) if c not in wrong]
    if right:
        parts.append(said("columns {which} are right", which=numbers(right)))
    moved = [(c, source) for c, source in enumerate(found) if source is not None and source != c]
    parts += [
        said("column {c} holds what belongs in {source}", c=c, source=source) for c, source in moved[:_SHOWN]
    ]
    if len(moved) > _SHOWN:
        parts.append("...")
    mixed = [c for c in wrong if found[c] is None]
    if len(mixed) == 1:
        parts.append(
            said("column {which} holds what belongs elsewhere, not all rows the same", which=mixed[0])
        )
    elif mixed:
        parts.append(
            said("columns {which} hold what belongs elsewhere, not all rows the same", which=numbers(mixed))
        )
    what = ", ".join(parts)
    return [said("On inputs where all rows of v are the same one, which should come out, {what}.", what=what)]


def _place(values: Tensor) -> int | None:
    """The column that all of the values come from, or None if they come from several."""
    nearest = round(float(values[0])) - 1 if values[0].isfinite() else -1
    return (
        nearest
        if nearest >= 0 and bool(((values - 1 - nearest).abs() < 0.01 * (nearest + 1)).all())
        else None
    )
