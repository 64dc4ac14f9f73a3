"""Describes what is wrong with decoded outputs: where, and by which slip in the first wrong sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from ladder.common.wording import said
from ladder.operations.attention.diagnosis import where
from ladder.operations.attention.reference import AttentionReference
from ladder.operations.attention.slips import Inputs, keys_of_o, slip_of_lse, slip_of_o
from ladder.operations.base import Reference
from ladder.operations.decoding.inputs import keys_of, make_inputs
from ladder.operations.decoding.problem import DecodingProblem


def diagnose(problem: DecodingProblem, outputs: Mapping[str, Tensor], reference: Reference) -> Iterator[str]:
    """Yields sentences on o (B, H, N, d) and lse (B, H, N), of which at least one is wrong."""
    wrong = {name: bad.any(-1) if name == "o" else bad for name, bad in reference.wrong(outputs).items()}
    told: list[str] = []
    for name, bad in wrong.items():
        told += [one for one in where(bad, name) if one not in told]
    yield from told
    bad = next(iter(wrong.values()))
    b = int(bad.flatten(1).any(1).nonzero()[0])
    if length := problem.all_lengths[b]:
        says = "\n".join(_slips(problem, outputs, reference, b, length, bad[b], "o" in wrong))
        if says:
            yield says if problem.batch == 1 else said("Sequence {number}: {says}", number=b, says=says)


def _slips(
    problem: DecodingProblem,
    outputs: Mapping[str, Tensor],
    reference: Reference,
    b: int,
    length: int,
    bad: Tensor,
    o_is_wrong: bool,
) -> Iterator[str]:
    """Yields the slip that produces sequence b, or else the keys by which its last wrong row is wrong."""
    given: dict[str, Any] = make_inputs(problem, outputs["o"].device.type)
    k, v = (
        keys_of(given[f"{x}_cache"], given["block_table"], b, length, given[f"{x}_descale"])[None]
        for x in "kv"
    )
    inputs = Inputs(given["q"][b : b + 1], k, v, given["sinks"])
    one = problem.of_sequences(1, length)
    exact = AttentionReference(
        {name: whole[b : b + 1] for name, whole in reference.outputs.items()}, dict(reference.bounds)
    )
    o, lse = (outputs[name][b : b + 1] for name in ("o", "lse"))
    says = slip_of_o(one, o, exact, inputs) if o_is_wrong else slip_of_lse(one, lse, exact, inputs)
    if says:
        yield says
    elif o_is_wrong:
        head, row = (int(index) for index in bad.nonzero()[-1])
        is_right = bool(((lse - exact.lse).abs() <= exact.lse_bound)[0, head, row])
        if keys := keys_of_o(one, o, exact, (0, head, row), lse_is_right=is_right, inputs=inputs):
            yield said("Row {row} of head {head} equals the result {keys}.", row=row, head=head, keys=keys)
