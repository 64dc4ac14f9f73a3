"""The attention problem: sizes, dtype, mask and scale, validated on construction."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.base import AnyProblem, check_dtype, check_size, parse_sizes

#: The kinds of inputs that :mod:`ladder.operations.attention.inputs` draws.
INPUTS = ("normal", "large", "negative", "equal", "dominant", "rising")
#: The format of ``--problem``, and an example.
SIZE_TEXT = ("B,H,N,M,d", "1,2,256,256,64")
#: The largest |scale|: kernels multiply logits by it in fp32, whose largest number is 3.4e38.
LARGEST_SCALE = 1e30


@dataclass(frozen=True)
class Problem(AnyProblem):
    """q (B, H, N, d), k and v (B, Hkv, M, d) -> o (B, H, N, d) and lse (B, H, N).

    ``kv_heads`` is Hkv; head h reads kv head h // (H / Hkv). ``is_causal`` is aligned to the upper left (key
    j <= query i); ``scale`` may have either sign, up to :data:`LARGEST_SCALE`, and is 1 / sqrt(d) if None.
    Both are as in ``torch.nn.functional.scaled_dot_product_attention``. ``inputs`` names one of
    :data:`INPUTS`; if they are ``strided``, a token's heads lie side by side in a wider row. If ``dtype`` is
    None, each stage uses the first dtype that it lists.

    Raises :class:`InvalidProblem`.
    """

    operation: ClassVar[str] = "attention"

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
    strided: bool = False

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
            if value is not None:
                check_size(letter, name, value)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise InvalidProblem(
                f"H = {self.heads} is not a multiple of Hkv = {self.kv_heads}; "
                "each kv head serves the same number of query heads"
            )
        check_dtype(self.dtype)
        if self.inputs not in INPUTS:
            raise InvalidProblem(f"inputs {self.inputs!r} is none of {', '.join(INPUTS)}")
        if self.scale is not None:
            check_factor("scale", self.scale)

    @classmethod
    def parse(cls, text: str, **others: Any) -> Problem:
        """Parses ``"B,H,N,M,d"`` from the command line."""
        batch, heads, q_len, kv_len, head_dim = parse_sizes(text, SIZE_TEXT)
        return cls(batch, heads, q_len, kv_len, head_dim, **others)

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"strides"} if self.strided else ())

    @property
    def num_kv_heads(self) -> int:
        """Hkv."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def softmax_scale(self) -> float:
        """The factor applied to q k."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    @property
    def flops(self) -> float:
        """4 B H N M d, or half of that if causal: the convention for quoting attention speeds."""
        full = 4.0 * self.batch * self.heads * self.q_len * self.kv_len * self.head_dim
        return full / 2 if self.is_causal else full

    @property
    def command_options(self) -> str:
        """The command-line options that describe this problem."""
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
        if self.strided:
            words.append("--strided")
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
            *(["strided"] if self.strided else []),
        ]
        return " ".join(parts)


def check_factor(name: str, factor: Any) -> None:
    """Raises :class:`InvalidProblem` unless a factor of the logits is a number up to
    :data:`LARGEST_SCALE`.
    """
    if not isinstance(factor, Real) or isinstance(factor, bool):
        raise InvalidProblem(f"{name} is {factor!r}; it must be a number")
    try:
        size = abs(float(factor))
    except OverflowError:  # an int
        size = math.inf
    if not size <= LARGEST_SCALE:  # NaN is not
        raise InvalidProblem(
            f"{name} is {factor}; it must be finite, from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}, "
            "since kernels compute logits in fp32"
        )
