"""The tile library's operations on registers against torch: on random numbers, ones, an identity, and running
numbers, which reveal where a misplaced element went.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tile_programs import (
    Case,
    Unit,
    full_cases,
    pairwise_cases,
    tile_places,
    unit_of_size,
    units,
    vector_places,
)
from tile_results import INPUTS, Result, check, flushed, matrix, size
from torch import Tensor

from ladder.operations import TORCH_DTYPES


def rounded(dtype: torch.dtype, *values: Tensor, op: Callable[..., Tensor]) -> Tensor:
    """Applies the operation in fp32 and rounds to the dtype."""
    return op(*(value.float() for value in values)).to(dtype)


def unary(case: Case, a: Tensor) -> list[Result]:
    t = case.torch_dtype
    square = rounded(t, a, a, op=torch.mul)
    return [
        Result("zero", torch.zeros_like(a)),
        Result("neg_infty", torch.full_like(a, -torch.inf)),
        Result("copy", a),
        Result("exp", a.double().exp().to(t), 2),
        Result("exp2", flushed(a.double().exp2().to(t)), 4),
        Result("log", square.double().log().to(t), 2),
        Result("rsqrt", square.double().rsqrt().to(t), 4),
    ]


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": torch.maximum,
}
#: Operations with a scalar.
BY_NUMBER = ("add", "mul")
BY_VECTOR = {
    "sub_row": torch.sub,
    "mul_row": torch.mul,
    "div_row": torch.div,
    "add_col": torch.add,
    "sub_col": torch.sub,
    "mul_col": torch.mul,
}


def binary(case: Case, a: Tensor, b: Tensor) -> list[Result]:
    t = case.torch_dtype
    number = torch.full_like(a, 0.75)
    results = [Result(name, rounded(t, a, b, op=op)) for name, op in BINARY.items()]
    results += [Result(f"{name} 0.75", rounded(t, a, number, op=BINARY[name])) for name in BY_NUMBER]
    return [*results, Result("add in place", rounded(t, a, b, op=torch.add))]


def by_vector(case: Case, a: Tensor, column: Tensor, row: Tensor) -> list[Result]:
    t = case.torch_dtype
    results = []
    for name, op in BY_VECTOR.items():
        vector = column[:, None] if name.endswith("_row") else row[None, :]
        results.append(Result(name, rounded(t, a, vector, op=op), 2 if name == "div_row" else 0))
    return results


def reductions(case: Case, a: Tensor, column: Tensor, exact: bool) -> list[Result]:
    t = case.torch_dtype
    largest, total = a.amax(1), a.double().sum(1)
    # The order of additions affects the last bits of the sum of absolute values.
    ulps, around = 0.0 if exact else 4.0, a.double().abs().sum(1).to(t)
    more = (total + column.double()) if t == torch.float32 else total.to(t).double() + column.double()
    results = [
        Result("row_max", largest),
        Result("row_sum", total.to(t), ulps, around),
        Result("row_max with accumulator", torch.maximum(largest, column)),
        Result("row_sum with accumulator", more.to(t), ulps, around),
    ]
    if case.layout == "row" and t == torch.float32:
        results.append(Result("row_max in two steps", a.amax(1)))
        results.append(Result("row_sum in two steps", total.to(t), ulps, around))
    for slack in (1.0, 1e4):
        above = bool((a.amax(1).float() > column.float() + slack).any())
        results.append(Result(f"any_above by {slack:g}", torch.full((32,), float(above), dtype=t)))
    return results


def masks(case: Case, a: Tensor, first: int, second: int) -> list[Result]:
    r = torch.arange(case.rows)[:, None]
    c = torch.arange(case.cols)[None, :]

    def where(keep: Tensor, value: float) -> Tensor:
        return torch.where(keep, a, torch.full_like(a, value))

    inf = torch.inf
    return [
        Result("make_causal", where(c <= r, -inf)),
        Result("make_causal at an offset", where(second + c <= first + r, -inf)),
        Result("tril", a.tril(first)),
        Result("triu", a.triu(first)),
        Result("tril with a value", where(c <= r - second, 2.0)),
        Result("triu with a value", where(c >= r - second, 2.0)),
        Result("right_fill", where(c < first, -inf).expand_as(a)),
        Result("right_fill with a value", where(c < second, 2.0).expand_as(a)),
        Result("make_causal_t", where(r <= c, -inf)),
        Result("make_causal_t at an offset", where(first + r <= second + c, -inf)),
        Result("lower_fill", where(r < first, -inf).expand_as(a)),
        Result("lower_fill with a value", where(r < second, 2.0).expand_as(a)),
    ]


def conversions(case: Case, a: Tensor) -> list[Result]:
    other = "col" if case.layout == "row" else "row"
    swapped = tile_places(case.rows, case.cols, other)
    return [
        Result("swap_layout", a, places=swapped),
        Result("transposed", a.T, places=tile_places(case.cols, case.rows, other)),
    ]


def run_family(case: Case, unit: Unit) -> None:
    t, shape = case.torch_dtype, (case.rows, case.cols)
    places = tile_places(*shape, case.layout)
    of_column, of_row = ("lines", "span") if case.layout == "row" else ("span", "lines")
    column_places, row_places = vector_places(case.rows, of_column), vector_places(case.cols, of_row)

    def launch(results: list[Result], what: str, inputs: list[Tensor], *more: Tensor | int) -> None:
        written = torch.full((size(results),), torch.nan, dtype=t)
        source = torch.cat([x.flatten() for x in inputs])
        case.launch(unit, (source, written, *more))
        check(results, written, what)

    def tiles(results: list[Result]) -> list[Result]:
        return [r._replace(places=places) for r in results]

    for kind in INPUTS:
        a = matrix(kind, *shape, t)
        b = matrix(kind, *shape, t, seed=7)
        column, row = matrix(kind, 1, case.rows, t, seed=3)[0], matrix(kind, 1, case.cols, t, seed=5)[0]
        what = f"{kind} {case}"
        if case.family == "unary":
            a = a / 32 if kind == "running" else a
            launch(tiles(unary(case, a)), what, [a[places]])
        elif case.family == "binary":
            launch(tiles(binary(case, a, b)), what, [a[places], b[places]])
        elif case.family == "by_vector":
            results = by_vector(case, a, column, row)
            launch(tiles(results), what, [a[places], column[column_places], row[row_places]])
        elif case.family == "reductions":
            results = [
                result._replace(places=(column_places,)) if result.name.startswith("row") else result
                for result in reductions(case, a, column, exact=kind != "random")
            ]
            launch(results, what, [a[places], column[column_places]])
        elif case.family == "conversions":
            copies = [torch.full(shape, torch.nan, dtype=d).flatten() for d in TORCH_DTYPES.values()]
            launch(conversions(case, a), what, [a[places]], *copies)
            for copy in copies:
                check([Result(f"copy to {copy.dtype}", a.to(copy.dtype), places=places)], copy, what)
        else:
            offsets = [(5, 16), (case.cols, case.rows)] if kind == "running" else [(17, 3)]
            for first, second in offsets if kind in ("running", "random") else []:
                results = tiles(masks(case, a, first, second))
                launch(results, f"{what} {first} {second}", [a[places]], first, second)


FAMILIES = ("unary", "binary", "by_vector", "reductions", "conversions", "masks")
PAIRWISE = [case for family in FAMILIES for case in pairwise_cases(family)]
FULL = [case for family in FAMILIES for case in full_cases(family)]
PAIRWISE_UNITS = units(PAIRWISE)


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_against_torch(case: Case) -> None:
    run_family(case, PAIRWISE_UNITS[case.together])


@pytest.mark.full
@pytest.mark.parametrize("case", FULL, ids=str)
def test_against_torch_everywhere(case: Case) -> None:
    run_family(case, unit_of_size(case, FULL))
