"""Describes what is wrong with gradients: which ones, in which heads and rows, and by what slip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ladder.common.wording import said
from ladder.operations.attention.diagnosis import first_wrong, where
from ladder.operations.attention_backward.problem import BackwardProblem
from ladder.operations.attention_backward.slips import range_of, slip
from ladder.operations.base import Reference, is_wrong_text, known_values, rest_is_right


def diagnose(
    problem: BackwardProblem, inputs: Mapping[str, Any], outputs: Mapping[str, Tensor], reference: Reference
) -> list[str]:
    """Describes what is wrong with dq (B, H, N, d), dk and dv (B, Hkv, M, d); empty if all are right.

    A slip that explains all that is wrong is said first.
    """
    wrong = reference.wrong(outputs)
    if not wrong:
        return []
    known = slip(problem, inputs, {name: outputs[name] for name in wrong}, reference.bounds)
    sentences = [*([known] if known else []), *rest_is_right(reference, wrong)]
    for name, of_name in wrong.items():
        sentences.append(is_wrong_text(name, of_name))
        sentences += where(of_name.any(-1), name)
        got, exact = outputs[name], reference.outputs[name]
        simple = [] if known else known_values(got, exact, of_name)
        sentences += [*simple, first_wrong(got, exact, of_name, name)]
        if not known and not simple:
            # Under a causal mask a query's last row has the most terms, and a key's first.
            batch, head = of_name.nonzero()[0, :2].tolist()
            row = int(of_name[batch, head].any(-1).nonzero()[-1 if name == "dq" else 0])
            error = got[batch, head, row].double() - exact[batch, head, row]
            terms = range_of(problem, inputs, name, (batch, head, row), error, reference.bounds[name])
            if terms:
                sentences.append(
                    said(
                        "Row {row} of {name}, head {head}, equals the result {terms}.",
                        row=row,
                        name=name,
                        head=head,
                        terms=terms,
                    )
                )
    return sentences
