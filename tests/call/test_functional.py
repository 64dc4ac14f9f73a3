"""ladder.attention refuses invalid problems before anything is built."""

import pytest
import torch
from rungs import named

import ladder
from ladder.errors import InvalidProblem, StageError, UnsupportedProblem


def tensors(shape=(1, 2, 16, 32), kv_shape=None, dtype=torch.float16):
    return (
        torch.zeros(shape, dtype=dtype),
        torch.zeros(kv_shape or shape, dtype=dtype),
        torch.zeros(kv_shape or shape, dtype=dtype),
    )


@pytest.mark.parametrize(
    "shape, kv_shape, message",
    [
        ((1, 2, 16, 32), (1, 2, 16, 64), "head_dim 64 and query 32"),
        ((1, 4, 16, 32), (1, 2, 16, 32), "4 heads and key 2"),
    ],
)
def test_shapes_that_do_not_match(shape, kv_shape, message):
    with pytest.raises(InvalidProblem, match=message):
        ladder.attention(*tensors(shape, kv_shape))


def test_heads_that_are_no_multiple():
    with pytest.raises(InvalidProblem, match="not a multiple"):
        ladder.attention(*tensors((1, 4, 16, 32), (1, 3, 16, 32)), enable_gqa=True)


def test_key_and_value_that_differ():
    q, k, _ = tensors()
    with pytest.raises(InvalidProblem, match=r"key is \(1, 2, 16, 32\) and value \(1, 2, 8, 32\)"):
        ladder.attention(q, k, k[:, :, :8].contiguous())


def test_mixed_dtypes():
    q, k, v = tensors()
    with pytest.raises(InvalidProblem, match=r"key is torch\.bfloat16 and query torch\.float16"):
        ladder.attention(q, k.bfloat16(), v)


def test_mixed_devices():
    q, k, v = tensors()
    with pytest.raises(InvalidProblem, match="value is on meta"):
        ladder.attention(q, k, v.to("meta"))


def test_dtype_that_no_stage_takes():
    with pytest.raises(UnsupportedProblem, match=r"torch\.float64"):
        ladder.attention(*tensors(dtype=torch.float64))
    with pytest.raises(UnsupportedProblem, match=r"torch\.int32"):
        ladder.attention(*tensors(dtype=torch.int32))


def test_scale_that_is_not_finite():
    with pytest.raises(InvalidProblem, match="finite"):
        ladder.attention(*tensors(), scale=float("nan"))


@pytest.mark.parametrize("scale", [1e39, -3e38])
def test_scale_that_fp32_does_not_hold(scale):
    with pytest.raises(InvalidProblem, match="finite"):
        ladder.attention(*tensors(), scale=scale)


def test_a_batch_too_large_for_a_grid():
    with pytest.raises(UnsupportedProblem, match="too large for a grid"):
        ladder.attention(*tensors((65536, 1, 1, 32)), stage="v3")


def test_what_is_no_tensor():
    with pytest.raises(InvalidProblem, match="query is a list"):
        ladder.attention([], *tensors()[1:])


def test_unknown_stage():
    with pytest.raises(StageError, match="no stage 'nonsense'"):
        ladder.attention(*tensors(), stage="nonsense")


def test_head_dim_that_no_stage_takes():
    with pytest.raises(UnsupportedProblem):
        ladder.attention(*tensors((1, 1, 16, 20)))


def test_auto_is_the_highest_stage_that_runs_there() -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 1, 16, 32, generator=generator).half() for _ in range(3))
    ours = ladder.attention(q, k, v, stage="auto", arch="sm_80")
    v6e = ladder.attention(q, k, v, stage="v6e", arch="sm_80")
    assert all(map(torch.equal, ours, v6e))
    default, last = ladder.attention(q, k, v), ladder.attention(q, k, v, stage="v12c")
    assert all(map(torch.equal, default, last))
    wide = torch.zeros(1, 1, 16, 256).half()
    with pytest.raises(UnsupportedProblem, match=f"{named('v12c')} runs on sm_90a alone, not on sm_80"):
        ladder.attention(wide, wide, wide, arch="sm_80")
