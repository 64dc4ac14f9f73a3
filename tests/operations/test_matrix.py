import itertools
import math
from dataclasses import replace

import pytest
import torch
from rungs import named

from ladder.operations import (
    AXES,
    CALIBRATION_PROBLEMS,
    INPUTS,
    KINDS,
    Problem,
    attention_float64,
    full_problems,
    make_inputs,
    pairwise_problems,
)
from ladder.run.evaluation import usual_problems
from ladder.stages import discover


def axis_values(problem: Problem) -> dict:
    sizes = {name: getattr(problem, name) for name in AXES if name != "batch_heads_kv"}
    return {**sizes, "batch_heads_kv": (problem.batch, problem.heads, problem.kv_heads)}


def test_any_two_values_of_any_two_axes_meet():
    met = {
        frozenset(pair)
        for problem in pairwise_problems()
        for pair in itertools.combinations(axis_values(problem).items(), 2)
    }
    for one, other in itertools.combinations(AXES, 2):
        for values in itertools.product(AXES[one], AXES[other]):
            assert frozenset({(one, values[0]), (other, values[1])}) in met


def test_pairwise_is_small_and_follows_the_stage():
    problems = pairwise_problems(("f32",), (64,))
    assert len(problems) < 60
    assert {(p.dtype, p.head_dim) for p in problems} == {("f32", 64)}
    assert len(set(problems)) == len(problems)


def test_full_grid_holds_every_combination_of_sizes():
    problems = full_problems(("f16",))
    plain = [p for p in problems if p.inputs == "normal" and p.scale is None]
    names = ("q_len", "kv_len", "head_dim", "is_causal", "batch_heads_kv")
    wanted = itertools.product(*(AXES[name] for name in names))
    assert {tuple(axis_values(p)[name] for name in names) for p in plain} >= set(wanted)
    assert {(p.inputs, p.scale) for p in problems} >= set(itertools.product(INPUTS, AXES["scale"]))


def test_calibration_problems_fill_no_more_than_one_block_an_sm():
    # A block of any rung has at least 16 query rows.
    for problem in CALIBRATION_PROBLEMS:
        assert problem.batch * problem.heads * -(-problem.q_len // 16) <= 132


def test_every_kind_of_inputs_can_be_made():
    assert tuple(KINDS) == INPUTS


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_inputs_are_what_their_name_says(kind, dtype):
    problem = Problem(1, 2, 64, 80, 64, dtype=dtype, kv_heads=1, inputs=kind)
    q, k, v = make_inputs(problem)
    assert q.shape == (1, 2, 64, 64) and k.shape == v.shape == (1, 1, 80, 64)
    assert all(torch.isfinite(t).all() and t.is_contiguous() for t in (q, k, v))
    s = q.double() @ k.double().transpose(-1, -2) * problem.softmax_scale
    if kind == "normal":
        assert 2 < s.abs().max() < 10 and abs(s.std() - 1) < 0.1
    elif kind == "large":
        assert s.abs().max() > 200
    elif kind == "negative":
        assert s.max() < -20
    elif kind == "equal":
        assert (s - s[..., :1]).abs().max() < 1e-9
    elif kind == "rising":
        bits = s / math.log(2)
        rise = bits[..., -1].amin() - bits[..., :-1].amax(), bits[..., -1].amax() - bits[..., :-1].amin()
        assert rise[0] > 16 and rise[1] < 17
    else:
        assert s.softmax(-1)[..., 40].min() > 0.99


def test_inputs_are_the_same_each_time():
    problem = Problem(1, 1, 8, 8, 32, dtype="f16")
    assert all(torch.equal(a, b) for a, b in zip(make_inputs(problem), make_inputs(problem), strict=True))


def test_reference_agrees_with_the_definition():
    """Compares element by element, with grouped heads and an upper-left mask."""
    problem = Problem(1, 4, 5, 3, 32, dtype="f32", kv_heads=2, is_causal=True)
    q, k, v = make_inputs(problem)
    o, lse = attention_float64(q, k, v, is_causal=True, scale=-0.3)
    for h, i in itertools.product(range(4), range(5)):
        keys = [j for j in range(3) if j <= i]
        logits = [-0.3 * float(q[0, h, i].double() @ k[0, h // 2, j].double()) for j in keys]
        weights = torch.tensor(logits, dtype=torch.float64).exp()
        expected = (
            sum(w * v[0, h // 2, j].double() for w, j in zip(weights, keys, strict=True)) / weights.sum()
        )
        assert torch.allclose(o[0, h, i], expected, rtol=0, atol=1e-12)
        assert abs(float(lse[0, h, i]) - float(weights.sum().log())) < 1e-12


@pytest.mark.parametrize("name", ["x4", "d6", "h7d"])
def test_a_rung_of_one_head_dim_has_a_default_problem(name: str) -> None:
    rung = discover()[named(name)]
    for head_dim in rung.head_dims:
        stage = replace(rung, head_dims=(head_dim,))
        assert all(map(stage.suits, usual_problems(stage)))
