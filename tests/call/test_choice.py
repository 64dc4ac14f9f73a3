"""The rung that "auto" chooses, for each kind of problem."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rungs import named

from ladder.call.runs import highest
from ladder.errors import UnsupportedProblem
from ladder.operations import BackwardProblem, DecodingProblem, HstuProblem, Problem
from ladder.stages import discover

HEAD_DIMS = (64, 128, 256)
WINDOW = (9, 0)
LENGTHS = {"q_lens": (100,), "kv_lens": (100,)}
#: By head dimension.
DENSE_GRADIENTS = {32: named("b4g"), 64: named("b5g"), 128: named("b5g")}
#: What a problem of attention has, the rung of the forward pass, and the one of the gradients.
ATTENTION: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, named("v12c"), "dense"),
    ({"is_causal": True}, named("v12c"), "dense"),
    ({"window": WINDOW}, named("x2"), named("x2b")),
    ({**LENGTHS, "window": WINDOW}, named("x1"), named("x1b")),
    ({"sinks": True, "window": WINDOW}, named("x3"), named("x3b")),
    ({"softcap": 30.0, "window": WINDOW}, named("x4d"), named("x4b")),
)
DECODING: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, named("d5")),
    ({"page_size": 16}, named("d5")),
    ({"window": 3, "is_causal": True}, named("d5")),
    ({"num_splits": 3}, named("d3")),
    ({"num_splits": 3, "page_size": 16}, named("d3")),
    ({"e4m3": True}, named("d6")),
    ({"e4m3": True, "page_size": 16}, named("d6")),
)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("has", "forward", "backward"), ATTENTION)
def test_attention(has: dict[str, Any], forward: str, backward: str, head_dim: int, dtype: str) -> None:
    sizes = 1, 2, 100, 100, head_dim
    if has.get("sinks") and head_dim == 256:
        with pytest.raises(
            UnsupportedProblem, match="no stage takes d = 256 with sinks and window; stages take 64, 128"
        ):
            highest(Problem(*sizes, dtype=dtype, **has))
    else:
        assert highest(Problem(*sizes, dtype=dtype, **has)).name == forward
    if head_dim < 256:
        expected = DENSE_GRADIENTS[head_dim] if backward == "dense" else backward
        assert highest(BackwardProblem(*sizes, dtype=dtype, **has)).name == expected


def test_a_rung_that_has_not_been_timed_is_chosen_by_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With d = 512, which no other rung takes."""
    rung = tmp_path / "mine"
    rung.mkdir()
    (rung / "kernel.cu").touch()
    toml = (discover()["v12c"].path / "stage.toml").read_text()
    toml = re.sub("head_dims = .*", "head_dims = [512]", toml)
    monkeypatch.setenv("LADDER_STAGES", str(rung))
    problem = Problem(1, 2, 100, 100, 512, dtype="f16")
    (rung / "stage.toml").write_text(toml)
    assert highest(problem).name == "mine"
    (rung / "stage.toml").write_text("timed = false\n" + toml)
    with pytest.raises(UnsupportedProblem, match="mine has not been timed"):
        highest(problem)
    assert discover()["mine"].suits(problem)


@pytest.mark.parametrize(("head_dim", "rung"), [(32, named("b3")), (64, named("b6")), (128, named("b6"))])
def test_deterministic_gradients(head_dim: int, rung: str) -> None:
    assert highest(BackwardProblem(1, 2, 100, 100, head_dim), deterministic=True).name == rung


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_two_head_dimensions(dtype: str, is_causal: bool) -> None:
    assert highest(Problem(1, 2, 100, 100, 192, dtype=dtype, is_causal=is_causal)).name == named("x5")


@pytest.mark.parametrize("head_dim", [d for d in range(8, 257, 8) if d not in (32, 64, 128, 192, 256)])
def test_other_head_dimensions(head_dim: int) -> None:
    assert highest(Problem(1, 2, 100, 100, head_dim, dtype="bf16")).name == named("x6")


@pytest.mark.parametrize(
    ("head_dim", "has", "dims", "enough"),
    [
        (20, {}, "multiples of 8 up to 256", 24),
        (80, {"window": WINDOW}, "64, 128, 256", 128),
        (80, {"sinks": True}, "64, 128", 128),
        (200, {"softcap": 9.0}, "64, 128, 256", 256),
        (80, {"dtype": "f32"}, "32, 64, 128", 128),
    ],
)
def test_the_refusal_names_head_dimensions_that_work(
    head_dim: int, has: dict[str, Any], dims: str, enough: int
) -> None:
    problem = Problem(1, 2, 100, 100, head_dim, **{"dtype": "f16", **has})
    with pytest.raises(UnsupportedProblem, match=f"takes? d = {head_dim}.*; stages take {dims}\n") as refused:
        highest(problem)
    assert f"with zeros to d = {enough}, and pass scale={head_dim} ** -0.5" in str(refused.value)
    highest(replace(problem, head_dim=enough))


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("has", "rung"), DECODING)
def test_decoding(has: dict[str, Any], rung: str, head_dim: int) -> None:
    assert highest(DecodingProblem(1, 2, 1, 100, head_dim, **has)).name == rung


@pytest.mark.parametrize("bias_heads", [1, 2])
@pytest.mark.parametrize(
    ("head_dim", "rung"), [(32, named("h7d")), (64, named("h7d")), (128, named("h7d")), (256, named("h3"))]
)
def test_hstu_attention_with_a_bias(head_dim: int, rung: str, bias_heads: int) -> None:
    assert highest(HstuProblem(2, head_dim, (100, 30), bias_heads=bias_heads)).name == rung
    assert highest(HstuProblem(2, head_dim, (100, 30))).name == named("h7")
