"""The attention problem: sizes, dtype, mask and scale, validated on construction."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.base import AnyProblem, check_dtype, check_size, parse_sizes
from ladder.operations.hstu.mask import check_window

#: The kinds of inputs that :mod:`ladder.operations.attention.inputs` draws.
INPUTS = ("normal", "large", "negative", "equal", "dominant", "rising")
#: The format of ``--problem``, and an example.
SIZE_TEXT = ("B,H,N,M,d", "1,2,256,256,64")
#: The largest |scale|: kernels multiply logits by it in fp32, whose largest number is 3.4e38.
LARGEST_SCALE = 1e30
#: The head dims that most rungs take; others are those of variants.
USUAL_HEAD_DIMS = (32, 64, 128, 256)
#: Further than any two tokens of a sequence are apart.
FAR = 2**30


@dataclass(frozen=True)
class Problem(AnyProblem):
    """q (B, H, N, d), k and v (B, Hkv, M, d) -> o (B, H, N, d) and lse (B, H, N).

    ``kv_heads`` is Hkv; head h reads kv head h // (H / Hkv). ``is_causal`` is aligned to the upper left (key
    j <= query i); ``scale`` may have either sign, up to :data:`LARGEST_SCALE`, and is 1 / sqrt(d) if None.
    Both are as in ``torch.nn.functional.scaled_dot_product_attention``. ``inputs`` names one of
    :data:`INPUTS`; if they are ``strided``, a token's heads lie side by side in a wider row. If ``dtype`` is
    None, each stage uses the first dtype that it lists.

    ``window`` (left, right) is a mask aligned to the lower right, as in FlashAttention: query i is at the
    position of key i + M - N, and sees ``left`` keys before that one and ``right`` after it; -1 has no limit.
    A row that sees no key has o = 0 and lse = -inf.

    With a ``softcap`` c the logits are c tanh(scale q k / c). With ``sinks`` (H), fp32, exp(sink of the head)
    is added to each row sum: a key with this logit and the value 0, which every row sees. Then a row without
    other keys has lse = sink.

    With ``q_lens`` and ``kv_lens`` there are B sequences of different lengths, one after another, and N and M
    are the largest lengths: q and o are (sum of q_lens, H, d), k and v (sum of kv_lens, Hkv, d), lse is (H,
    sum of q_lens). A window is aligned to the lower right of each sequence.

    d is the head dim of q and k. That of v and o is ``value_dim``: d, or 128 for d = 192, as in MLA.

    Raises :class:`InvalidProblem`.

    >>> ladder.Problem(1, 2, 128, 128, 64, is_causal=True).flops
    4194304.0
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
    window: tuple[int, int] | None = None
    softcap: float | None = None
    sinks: bool = False
    q_lens: tuple[int, ...] | None = None
    kv_lens: tuple[int, ...] | None = None

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
        if self.softcap is not None:
            check_factor("softcap", self.softcap)
            if not self.softcap > 0:
                raise InvalidProblem(
                    f"softcap is {self.softcap}; it must be positive", "None leaves the logits as they are."
                )
        if self.q_lens is not None or self.kv_lens is not None:
            self._check_lengths()
        if self.window is not None:
            check_window(self.window)
            if self.is_causal:
                raise InvalidProblem(
                    "is_causal and a window are two masks",
                    "Leave out is_causal: (left, 0) is causal by itself, aligned to the lower right.",
                )

    def _check_lengths(self) -> None:
        given = (("q_lens", self.q_lens, self.q_len), ("kv_lens", self.kv_lens, self.kv_len))
        for name, lengths, largest in given:
            if lengths is None or len(lengths) != self.batch:
                raise InvalidProblem(f"{name} is {lengths}; wanted {self.batch} lengths, one per sequence")
            if not all(isinstance(length, int) and length >= 0 for length in lengths):
                raise InvalidProblem(f"{name} is {lengths}; lengths are whole numbers from 0")
            if max(lengths) != largest:
                raise InvalidProblem(f"{name} is {lengths}; its largest must be {largest}")
        if self.is_causal or self.strided:
            raise InvalidProblem(
                "sequences of different lengths have no is_causal, and are not strided",
                "The window (-1, 0) is causal.",
            )

    @property
    def sequences(self) -> list[Problem]:
        """The problem of each sequence that has queries and keys; without lengths, the whole problem."""
        if self.q_lens is None or self.kv_lens is None:
            return [self]
        one = replace(self, batch=1, q_len=1, kv_len=1, q_lens=None, kv_lens=None)
        lengths = zip(self.q_lens, self.kv_lens, strict=True)
        return [replace(one, q_len=n, kv_len=m) for n, m in lengths if n and m]

    @classmethod
    def parse(cls, text: str, **others: Any) -> Problem:
        """Parses ``"B,H,N,M,d"`` from the command line."""
        batch, heads, q_len, kv_len, head_dim = parse_sizes(text, SIZE_TEXT)
        return cls(batch, heads, q_len, kv_len, head_dim, **others)

    @property
    def features(self) -> frozenset[str]:
        names = {
            "strides": self.strided,
            "window": self.window is not None,
            "softcap": self.softcap is not None,
            "sinks": self.sinks,
            "varlen": self.q_lens is not None,
        }
        return frozenset(name for name, there in names.items() if there)

    @property
    def num_kv_heads(self) -> int:
        """Hkv."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def value_dim(self) -> int:
        """The head dim of v and o."""
        return value_dim(self.head_dim)

    @property
    def softmax_scale(self) -> float:
        """The factor applied to q k."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else float(self.scale)

    @property
    def lengths(self) -> str | None:
        """The sequences' lengths: ``100/17``, or ``100/17 of 300/17`` keys."""
        if self.q_lens is None or self.kv_lens is None:
            return None
        queries, keys = ("/".join(map(str, lengths)) for lengths in (self.q_lens, self.kv_lens))
        return queries if queries == keys else f"{queries} of {keys}"

    @property
    def rules(self) -> dict[str, Any]:
        """What determines the weights besides q, k and sinks, as the reference takes it."""
        return {
            "is_causal": self.is_causal,
            "scale": self.softmax_scale,
            "window": self.window,
            "softcap": self.softcap,
        }

    @property
    def band(self) -> tuple[int, int]:
        """The mask as (begin, end): query i sees the keys i + begin to i + end - 1, as far as they exist.

        With lengths, i is the position among the keys, and both are far outside where there is no limit.
        """
        if self.q_lens is not None:
            left, right = self.window or (-1, -1)
            return (-FAR if left < 0 else max(-left, -FAR)), (FAR if right < 0 else min(right + 1, FAR))
        return band(self.q_len, self.kv_len, self.is_causal, self.window)

    @property
    def flops(self) -> float:
        """4 B H N M d, or half of that if causal: the convention for quoting attention speeds. With a window,
        4 B H d for each query and key that it sees. 4 d is 2 (d + value_dim) if they differ.
        """
        if self.q_lens is not None:
            return sum(one.flops for one in self.sequences)
        of_pair = 2.0 * self.batch * self.heads * (self.head_dim + self.value_dim)
        if self.window is not None:
            begin, end = self.band
            return of_pair * (self._keys_before(end) - self._keys_before(begin))
        return of_pair * self.q_len * self.kv_len / (2 if self.is_causal else 1)

    def _keys_before(self, diagonal: int) -> int:
        """The number of keys before i + ``diagonal``, summed over the queries i."""

        def total(last: int) -> int:  # of min(max(x, 0), M) over all x up to last
            ramp = min(max(last, 0), self.kv_len)
            return ramp * (ramp + 1) // 2 + max(last - self.kv_len, 0) * self.kv_len

        return total(self.q_len - 1 + diagonal) - total(diagonal - 1)

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
        if self.window is not None:
            words.append(f"--window={self.window[0]},{self.window[1]}")
        if self.softcap is not None:
            words += ["--softcap", repr(self.softcap)]
        if self.sinks:
            words.append("--sinks")
        for option, lengths in (("--queries", self.q_lens), ("--keys", self.kv_lens)):
            words += [option, "/".join(map(str, lengths))] if lengths is not None else []
        return shlex.join(words)

    def __str__(self) -> str:
        parts = [
            *described(self),
            *(["window {},{}".format(*self.window)] if self.window is not None else []),
            *([f"softcap={self.softcap:g}"] if self.softcap is not None else []),
            *(["sinks"] if self.sinks else []),
            *([f"lengths {self.lengths}"] if self.q_lens else []),
        ]
        return " ".join(parts)


def described(problem: Any) -> list[str]:
    """What problems of attention and of decoding are described by alike."""
    return [
        f"B={problem.batch} H={problem.heads}",
        *([f"Hkv={problem.kv_heads}"] if problem.num_kv_heads != problem.heads else []),
        f"N={problem.q_len} M={problem.kv_len} d={problem.head_dim}",
        *([problem.dtype] if problem.dtype else []),
        *(["causal"] if problem.is_causal else []),
        *([f"scale={problem.scale:g}"] if problem.scale is not None else []),
        *([f"{problem.inputs} inputs"] if problem.inputs != "normal" else []),
        *(["strided"] if problem.strided else []),
    ]


def value_dim(head_dim: int) -> int:
    """The head dim of v and o for one of q and k."""
    return 128 if head_dim == 192 else head_dim


def band(q_len: int, kv_len: int, is_causal: bool, window: tuple[int, int] | None) -> tuple[int, int]:
    """The diagonals (begin, end) of a mask: query i sees the keys i + begin to i + end - 1 that exist.

    Mirrors stages/include/ladder/band.h.
    """
    left, right = window or (-1, 0 if is_causal else -1)
    position = 0 if window is None else kv_len - q_len  # of query 0
    begin = -q_len if left < 0 else position - left
    end = kv_len if right < 0 else position + right + 1
    return max(begin, -q_len), min(end, kv_len)


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
