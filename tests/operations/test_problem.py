import math

import pytest

from ladder.errors import InvalidProblem
from ladder.operations import LARGEST_SCALE, LARGEST_SIZE, Problem, operation_of, parse_dtype


def test_parse_gives_sizes_in_order():
    problem = Problem.parse("1,2,3,4,64", kv_heads=1, is_causal=True)
    assert (problem.batch, problem.heads, problem.q_len, problem.kv_len, problem.head_dim) == (1, 2, 3, 4, 64)
    assert problem.num_kv_heads == 1 and problem.is_causal


@pytest.mark.parametrize("text", ["", "1,2,3,4", "1,2,3,4,5,6", "1,2,x,4,64", "1,2,3,4,64.0"])
def test_parse_refuses_what_is_not_five_numbers(text):
    with pytest.raises(InvalidProblem, match="five whole numbers"):
        Problem.parse(text)


@pytest.mark.parametrize("text, name", [("0,1,1,1,64", "B"), ("1,1,0,1,64", "N"), ("1,1,1,-3,64", "M")])
def test_sizes_below_one_are_named(text, name):
    with pytest.raises(InvalidProblem, match=rf"^{name} \("):
        Problem.parse(text)


def test_heads_must_be_a_multiple_of_kv_heads():
    with pytest.raises(InvalidProblem, match="multiple"):
        Problem(1, 4, 8, 8, 64, kv_heads=3)
    assert Problem(1, 4, 8, 8, 64, kv_heads=2).num_kv_heads == 2


def test_the_largest_size_is_named():
    assert Problem(1, 1, LARGEST_SIZE, 1, 64).q_len == 2147483647
    with pytest.raises(InvalidProblem, match=r"N \(q_len\) is 2147483648; .* from 1 to 2,147,483,647"):
        Problem.parse("1,1,2147483648,8,32")


@pytest.mark.parametrize(
    "scale", [math.nan, math.inf, -math.inf, 1e39, -1e39, 1e38, pytest.param(10**400, id="10^400")]
)
def test_scale_must_be_finite(scale):
    with pytest.raises(InvalidProblem, match=r"finite, from -1e\+30 to 1e\+30"):
        Problem(1, 1, 1, 1, 64, scale=scale)


def test_the_largest_scale():
    assert Problem(1, 1, 1, 1, 64, scale=LARGEST_SCALE).softmax_scale == LARGEST_SCALE


def test_scale_must_be_a_number():
    with pytest.raises(InvalidProblem, match="scale is '1'; it must be a number"):
        Problem(1, 1, 1, 1, 64, scale="1")


def test_default_scale_and_flops():
    problem = Problem(2, 3, 5, 7, 64)
    assert problem.softmax_scale == 0.125
    assert Problem(2, 3, 5, 7, 64, scale=0.0).softmax_scale == 0.0
    assert problem.flops == 4 * 2 * 3 * 5 * 7 * 64
    assert Problem(2, 3, 5, 7, 64, is_causal=True).flops == problem.flops / 2


@pytest.mark.parametrize(
    "name, short", [("torch.float16", "f16"), ("half", "f16"), ("BF16", "bf16"), ("float32", "f32")]
)
def test_dtype_names(name, short):
    assert parse_dtype(name) == short


def test_unknown_dtype():
    with pytest.raises(InvalidProblem, match="fp8"):
        parse_dtype("fp8")
    with pytest.raises(InvalidProblem, match="int8"):
        Problem(1, 1, 1, 1, 64, dtype="int8")


def test_what_is_no_problem_is_refused():
    with pytest.raises(InvalidProblem, match="'1,2,3,4,64' is not a problem"):
        operation_of("1,2,3,4,64")
