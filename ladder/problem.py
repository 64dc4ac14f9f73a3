"""The attention problem: sizes, dtype, mask and scale, checked once and then passed on by all."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any

from ladder.errors import InvalidProblem

DTYPES = ("f32", "f16", "bf16")
#: Made by ladder.inputs.
INPUTS = ("normal", "large", "negative", "equal", "dominant")
_DTYPE_ALIASES = {
    "fp32": "f32",
    "float32": "f32",
    "float": "f32",
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
}
#: The largest B, H, N, M or d: kernels hold sizes in an int.
LARGEST_SIZE = 2**31 - 1
#: The largest |scale|. Kernels multiply it by log2(e) in fp32, whose largest number is 3.4028e38.
LARGEST_SCALE = 2.35e38


@dataclass(frozen=True)
class Problem:
    """q (B, H, N, d), k and v (B, Hkv, M, d) -> o (B, H, N, d) and lse (B, H, N).

    ``kv_heads`` is Hkv; head h reads kv head h // (H / Hkv). ``is_causal`` is upper-left (key j <= query i)
    and ``scale`` any number up to :data:`LARGEST_SCALE` and of either sign, 1 / sqrt(d) if None, both as in
    ``torch.nn.functional.scaled_dot_product_attention``. ``inputs`` names one of :data:`INPUTS`.
    Without a ``dtype`` each stage takes the first that it lists.

    Raises :class:`InvalidProblem`.
    """

    batch: int
    heads: int
    q_len: int
    kv_len: int
    head_dim: int
    kv_heads: int | None = None
    dtype: str | None = None
    is_causal: bool = False
    scale: float | None = None
    inputs: str = "normal"

    def __post_init__(self) -> None:
        for name, letter in (
            ("batch", "B"),
            ("heads", "H"),
            ("q_len", "N"),
            ("kv_len", "M"),
            ("head_dim", "d"),
            ("kv_heads", "Hkv"),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_SIZE:
                raise InvalidProblem(
                    f"{letter} ({name}) is {value!r}; it must be a whole number from 1 to {LARGEST_SIZE:,}"
                )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise InvalidProblem(
                f"H = {self.heads} is not a multiple of Hkv = {self.kv_heads}; "
                "each kv head serves the same number of query heads"
            )
        if self.dtype is not None and self.dtype not in DTYPES:
            raise InvalidProblem(f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}")
        if self.inputs not in INPUTS:
            raise InvalidProblem(f"inputs {self.inputs!r} is none of {', '.join(INPUTS)}")
        if self.scale is not None:
            _check_scale(self.scale)

    @classmethod
    def parse(cls, text: str, **others: Any) -> Problem:
        """The problem of ``"B,H,N,M,d"`` as the command line gives it."""
        words = text.split(",")
        try:
            batch, heads, q_len, kv_len, head_dim = (int(word) for word in words)
        except ValueError:
            raise InvalidProblem(
                f"--problem {text!r} is not five whole numbers",
                "It is B,H,N,M,d, for example --problem 1,2,256,256,64",
            ) from None
        return cls(batch, heads, q_len, kv_len, head_dim, **others)

    @property
    def num_kv_heads(self) -> int:
        """Hkv."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def softmax_scale(self) -> float:
        """The factor of the logits."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    @property
    def flops(self) -> float:
        """4 B H N M d, half of that when causal: what attention speeds are quoted by."""
        full = 4.0 * self.batch * self.heads * self.q_len * self.kv_len * self.head_dim
        return full / 2 if self.is_causal else full

    @property
    def command_options(self) -> str:
        """The options with which the command line makes this problem."""
        sizes = (self.batch, self.heads, self.q_len, self.kv_len, self.head_dim)
        words = ["--problem", ",".join(map(str, sizes))]
        if self.kv_heads is not None:
            words += ["--kv-heads", str(self.kv_heads)]
        if self.dtype is not None:
            words += ["--dtype", self.dtype]
        if self.is_causal:
            words.append("--causal")
        if self.scale is not None:
            words += ["--scale", repr(self.scale)]
        if self.inputs != "normal":
            words += ["--inputs", self.inputs]
        return shlex.join(words)

    def __str__(self) -> str:
        parts = [
            f"B={self.batch} H={self.heads}",
            *([f"Hkv={self.kv_heads}"] if self.num_kv_heads != self.heads else []),
            f"N={self.q_len} M={self.kv_len} d={self.head_dim}",
            *([self.dtype] if self.dtype else []),
            *(["causal"] if self.is_causal else []),
            *([f"scale={self.scale:g}"] if self.scale is not None else []),
            *([f"{self.inputs} inputs"] if self.inputs != "normal" else []),
        ]
        return " ".join(parts)


def _check_scale(scale: float) -> None:
    try:
        fits = abs(scale) <= LARGEST_SCALE  # False for NaN
    except TypeError:
        raise InvalidProblem(f"scale is {scale!r}; it must be a number") from None
    if not fits:
        raise InvalidProblem(
            f"scale is {scale}; it must be finite, from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}, "
            "as kernels compute scale * log2(e) in fp32"
        )


def parse_dtype(name: str) -> str:
    """``f16`` for any usual name of it (``fp16``, ``float16``, ``half``), likewise the others."""
    short = name.lower().removeprefix("torch.")
    short = _DTYPE_ALIASES.get(short, short)
    if short not in DTYPES:
        raise InvalidProblem(f"dtype {name!r} is none of {', '.join(DTYPES)}")
    return short
