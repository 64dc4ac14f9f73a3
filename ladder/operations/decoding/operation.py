"""Decoding as an operation of the harness."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ladder.operations.attention.operation import parse_number, strides
from ladder.operations.base import DTYPES, Huge, Operation, Output, Reference, Tensors
from ladder.operations.decoding import shapes
from ladder.operations.decoding.problem import SIZE_TEXT, DecodingProblem
from ladder.operations.hstu.problem import parse_lengths


class Decoding(Operation):
    """q (B, H, N, d) and a cache of keys and values -> o (B, H, N, d) and lse (B, H, N)."""

    name = "decoding"
    title = "decoding"
    problem = DecodingProblem
    columns = {
        **dict.fromkeys(("B", "H", "Hkv", "N", "M", "d"), "Int64"),
        "dtype": "string",
        "causal": "boolean",
        "lengths": "string",
        "page": "Int64",
        "splits": "Int64",
        "window": "Int64",
        "softcap": "Float64",
        "sinks": "boolean",
        "e4m3": "boolean",
    }
    output_names: tuple[str, ...] = ("o", "lse")
    strided: tuple[str, ...] = ("k_cache", "v_cache")
    size_text = SIZE_TEXT
    default_problem = shapes.DEFAULT_PROBLEM
    default_gpu_problem = shapes.DEFAULT_GPU_PROBLEM
    check_problems: Sequence[DecodingProblem] = shapes.CHECK_PROBLEMS
    calibration_problems: Sequence[DecodingProblem] = shapes.CALIBRATION_PROBLEMS
    bench_problems: Sequence[DecodingProblem] = shapes.BENCH_PROBLEMS

    def parse(self, size: str, **fields: Any) -> DecodingProblem:
        return DecodingProblem.parse(size, **fields)

    def size_of(self, problem: DecodingProblem) -> str:
        return problem.size_words

    def row(self, problem: DecodingProblem) -> dict[str, Any]:
        return {
            "B": problem.batch,
            "H": problem.heads,
            "Hkv": problem.num_kv_heads,
            "N": problem.q_len,
            "M": problem.kv_len,
            "d": problem.head_dim,
            "dtype": problem.dtype,
            "causal": problem.is_causal,
            "lengths": problem.length_words,
            "page": problem.page_size or None,
            "splits": problem.num_splits or None,
            "window": problem.window,
            "softcap": problem.softcap,
            "sinks": problem.sinks,
            "e4m3": problem.e4m3,
        }

    def title_of(self, row: Mapping[str, Any]) -> str:
        return super().title_of({**row, "Hkv": None if row["Hkv"] == row["H"] else row["Hkv"]})

    def arguments(self, problem: DecodingProblem, tensors: Tensors) -> dict[str, Any]:
        return {
            "k_strides": strides(tensors["k_cache"]),
            "v_strides": strides(tensors["v_cache"]),
            "batch": problem.batch,
            "heads": problem.heads,
            "kv_heads": problem.num_kv_heads,
            "q_len": problem.q_len,
            "kv_len": problem.kv_len,
            "head_dim": problem.head_dim,
            "page_size": problem.page_size,
            "table_width": problem.table_width,
            "num_splits": problem.num_splits,
            "dtype": problem.dtype,
            "is_causal": problem.is_causal,
            "scale": problem.softmax_scale,
            "window": -1 if problem.window is None else problem.window,
            "softcap": float(problem.softcap or 0),
        }

    def make_inputs(self, problem: DecodingProblem, device: str = "cpu") -> dict[str, Any]:
        from ladder.operations.decoding.inputs import make_inputs

        return make_inputs(problem, device)

    def outputs(self, problem: DecodingProblem) -> Sequence[Output]:
        rows = (problem.batch, problem.heads, problem.q_len)
        return (Output("o", (*rows, problem.head_dim), problem.dtype or "f16"), Output("lse", rows, "f32"))

    def reference(self, problem: DecodingProblem, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.decoding.reference import reference

        return reference(problem, inputs)

    def diagnose(
        self, problem: DecodingProblem, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.decoding.diagnosis import diagnose

        sentences = super().diagnose(problem, outputs, reference, owner)
        return [*sentences, *diagnose(problem, outputs, reference)] if sentences else []

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
        return shapes.matrix(dtypes, head_dims)

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[DecodingProblem]]:
        return {
            "lengths": shapes.length_boundaries(dtypes, head_dims),
            "heads": shapes.head_boundaries(dtypes, head_dims),
            "pages": shapes.page_boundaries(dtypes, head_dims),
            "windows": shapes.window_boundaries(dtypes, head_dims),
        }

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
        return shapes.large_problems(dtypes, head_dims)

    def beyond(self, count: int, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
        return shapes.beyond(count, dtypes[-1], head_dims[0])

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[DecodingProblem]]:
        return shapes.growing(dtype, head_dim)

    def random(
        self, seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
    ) -> Iterator[DecodingProblem]:
        return shapes.random_problems(seed, dtypes, head_dims, largest)

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
        """One problem for each dtype and head dim not listed."""
        unknown = [(dtype, head_dims[0]) for dtype in DTYPES if dtype not in dtypes]
        unknown += [(dtypes[0], d) for d in (16, 32, 48, 96) if d not in head_dims]
        return [DecodingProblem(1, 1, 1, 16, d, dtype=dtype) for dtype, d in unknown]

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        return shapes.beyond_32_bits(dtypes[-1], head_dims[-1])

    def input_shapes(self, problem: DecodingProblem) -> dict[str, Sequence[int]]:
        from ladder.operations.decoding.inputs import page_count

        size = (problem.num_kv_heads, problem.page_size or problem.kv_len, problem.head_dim)
        cache = (page_count(problem) if problem.page_size else problem.batch, *size)
        q = (problem.batch, problem.heads, problem.q_len, problem.head_dim)
        return {"q": q, "k_cache": cache, "v_cache": cache}

    def indices(self, problem: DecodingProblem, last: Mapping[str, Any]) -> Mapping[str, Any]:
        from ladder.operations.decoding.inputs import indices

        factors = {name: last[name] for name in ("k_descale", "v_descale") if last[name] is not None}
        return {**indices(problem, last["block_table"]), **factors}

    def needed_bytes(self, problem: DecodingProblem) -> int:
        from ladder.operations.attention.memory import needed_bytes

        return needed_bytes(problem.attention) + 4 * problem.cache_bytes

    def add_options(self, group: Any) -> None:
        group.add_argument(
            "--causal", action="store_true", default=None, help="the queries are the last tokens"
        )
        group.add_argument(
            "--strided", action="store_true", default=None, help="a token's heads lie side by side"
        )
        group.add_argument("--scale", type=parse_number, help="factor of the logits (1 / sqrt(d))")
        group.add_argument(
            "--lengths", type=parse_lengths, metavar="N/N/..", help="keys of each sequence (M each)"
        )
        group.add_argument("--page-size", type=int, metavar="N", help="keys per page (0: no pages)")
        group.add_argument("--splits", type=int, metavar="N", help="parts of the keys (0: the rung chooses)")
        group.add_argument("--window", type=int, metavar="N", help="keys before its own that a query sees")
        group.add_argument("--softcap", type=parse_number, help="the logits' largest size (no limit)")
        group.add_argument("--sinks", action="store_true", default=None, help="a logit of its own per head")
        group.add_argument(
            "--e4m3",
            action="store_true",
            default=None,
            help="keys and values in 8 bits, with a factor per head",
        )

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        given = {
            "is_causal": options.causal,
            "scale": options.scale,
            "strided": options.strided,
            "lengths": options.lengths,
            "page_size": options.page_size,
            "num_splits": options.splits,
            "window": options.window,
            "softcap": options.softcap,
            "sinks": options.sinks,
            "e4m3": options.e4m3,
        }
        return {name: value for name, value in given.items() if value is not None}

    def other_inputs(self, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """The same keys and values, elsewhere in memory: rolled, they would be beyond the lengths."""
        others = {name: None if x is None else x.clone() for name, x in inputs.items()}
        return {**others, "q": inputs["q"].roll(number, 1)}

    def baselines(
        self, problem: DecodingProblem, inputs: Mapping[str, Any]
    ) -> dict[str, Callable[[Any], Any]]:
        if (
            problem.page_size
            or problem.lengths is not None
            or problem.is_causal
            or problem.softcap
            or problem.sinks
            or problem.e4m3
        ):
            return {}  # torch's take none of these
        from ladder.operations.attention.baselines import torch_runs

        def of_attention(inputs: Mapping[str, Any]) -> dict[str, Any]:
            return {"q": inputs["q"], "k": inputs["k_cache"], "v": inputs["v_cache"]}

        def decoding(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda given: run(of_attention(given))

        runs = torch_runs(problem.attention, of_attention(inputs))
        return {name: decoding(run) for name, run in runs.items()}


OPERATION = Decoding()
