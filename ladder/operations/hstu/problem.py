"""The HSTU problem: a jagged batch, its mask, its bias and where its keys are stored."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.attention.problem import check_factor
from ladder.operations.base import AnyProblem, check_dtype, check_size
from ladder.operations.hstu.mask import CAUSAL, check_mask, check_window

#: ``strided``: tokens of q, k and v are parts of wider rows. ``large``: logits in the tens.
INPUTS = ("normal", "strided", "large")
SIZE_TEXT = ("H,d,lengths", "2,64,100/17/1")
#: The number of bounds per query, if there are intervals.
INTERVAL_BOUNDS = 3


@dataclass(frozen=True)
class HstuProblem(AnyProblem):
    """q (total_q, H, d), k and v (total_k, H, d) -> o (total_q, H, d), sequence by sequence.

    ``q_lens`` and ``kv_lens`` are the sequences' numbers of queries and keys (equal if None); the queries are
    the last of the tokens. ``contexts``, ``targets``, ``target_group_size``, ``window`` and ``intervals``
    define the mask, as in :func:`ladder.hstu_mask`. ``bias_heads`` is 0 without a bias, 1 with one that all
    heads share, or H. With a ``page_size``, the keys of the history are in pages of a cache. ``alpha`` is the
    factor of the logits, 1 / sqrt(d) if None; o is divided by ``scaling_seqlen``, the longest q_len if None.

    Raises :class:`InvalidProblem`.
    """

    operation: ClassVar[str] = "hstu"

    heads: int
    head_dim: int
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None
    targets: tuple[int, ...] | None = None
    target_group_size: int = 1
    window: tuple[int, int] = CAUSAL
    intervals: bool = False
    bias_heads: int = 0
    page_size: int = 0
    alpha: float | None = None
    scaling_seqlen: int | None = None
    dtype: str | None = None
    inputs: str = "normal"

    def __post_init__(self) -> None:
        check_size("H", "heads", self.heads)
        check_size("d", "head_dim", self.head_dim)
        check_dtype(self.dtype)
        if self.inputs not in INPUTS:
            raise InvalidProblem(f"inputs {self.inputs!r} is none of {', '.join(INPUTS)}")
        if not self.q_lens or not any(self.q_lens):
            raise InvalidProblem(f"q_lens is {self.q_lens}; wanted a sequence with a query, at least")
        for name in ("kv_lens", "contexts", "targets"):
            values = getattr(self, name)
            if values is not None and len(values) != self.batch:
                raise InvalidProblem(f"{name} has {len(values)} numbers for {self.batch} sequences")
        check_window(self.window)
        for b in range(self.batch):
            check_mask(*self.sequence(b), self.target_group_size, self.window)
        if self.bias_heads not in (0, 1, self.heads):
            raise InvalidProblem(f"bias_heads is {self.bias_heads}; it is 0, 1 or the heads, {self.heads}")
        if self.intervals and (self.contexts or self.targets or self.window != CAUSAL):
            raise InvalidProblem(
                f"window is {self.window}; intervals replace the mask, so it stays {CAUSAL}, without "
                "contexts or targets"
            )
        if self.page_size:
            self._check_pages()
        if self.alpha is not None:
            check_factor("alpha", self.alpha)
        if self.scaling_seqlen is not None:
            check_size("scaling_seqlen", "scaling_seqlen", self.scaling_seqlen)

    def _check_pages(self) -> None:
        if self.page_size < 0:
            raise InvalidProblem(f"page_size is {self.page_size}; it must be positive")
        if self.bias_heads or self.intervals or self.contexts or self.window != CAUSAL:
            raise InvalidProblem("keys in pages go with a causal mask and targets, and no bias")
        for b in range(self.batch):
            q_len, kv_len, _, targets = self.sequence(b)
            if kv_len and (targets > q_len or targets == kv_len):
                raise InvalidProblem(
                    f"sequence {b} has {targets} targets, {q_len} queries and {kv_len} keys: with pages "
                    "every target is a query, and there is a history"
                )

    @property
    def batch(self) -> int:
        return len(self.q_lens)

    @property
    def all_kv_lens(self) -> tuple[int, ...]:
        return self.q_lens if self.kv_lens is None else self.kv_lens

    def sequence(self, b: int) -> tuple[int, int, int, int]:
        """The numbers of queries, keys, contexts and targets of sequence b."""
        contexts = self.contexts[b] if self.contexts else 0
        return self.q_lens[b], self.all_kv_lens[b], contexts, self.targets[b] if self.targets else 0

    @property
    def factor(self) -> float:
        """The factor of the logits."""
        return 1.0 / math.sqrt(self.head_dim) if self.alpha is None else float(self.alpha)

    @property
    def length(self) -> int:
        """The divisor of o."""
        return self.scaling_seqlen or max(self.q_lens)

    @property
    def features(self) -> frozenset[str]:
        masked = self.contexts or self.targets or self.window != CAUSAL or self.intervals
        names = {
            "masks": bool(masked) and not self.page_size,
            "bias": bool(self.bias_heads),
            "pages": bool(self.page_size),
        }
        return frozenset(name for name, there in names.items() if there)

    @property
    def flops(self) -> float:
        """4 H d times the number of query-key pairs of a causal mask, whatever the actual mask."""
        pairs = sum(n * m - n * (n - 1) / 2 for n, m in zip(self.q_lens, self.all_kv_lens, strict=True))
        return 4.0 * self.heads * self.head_dim * pairs

    @property
    def size_words(self) -> str:
        return f"{self.heads},{self.head_dim},{_joined(self.q_lens)}"

    @property
    def command_options(self) -> str:
        words: list[str] = ["--problem", self.size_words]
        for option, values in (
            ("--keys", self.kv_lens),
            ("--contexts", self.contexts),
            ("--targets", self.targets),
        ):
            words += [option, _joined(values)] if values else []
        words += ["--group", str(self.target_group_size)] if self.target_group_size != 1 else []
        words += [f"--window={self.window[0]},{self.window[1]}"] if self.window != CAUSAL else []
        words += ["--intervals"] if self.intervals else []
        words += ["--bias-heads", str(self.bias_heads)] if self.bias_heads else []
        words += ["--page-size", str(self.page_size)] if self.page_size else []
        words += [f"--alpha={self.alpha!r}"] if self.alpha is not None else []
        words += ["--scaling-seqlen", str(self.scaling_seqlen)] if self.scaling_seqlen else []
        words += ["--dtype", self.dtype] if self.dtype else []
        words += ["--inputs", self.inputs] if self.inputs != "normal" else []
        return shlex.join(words)

    def row(self) -> dict[str, Any]:
        """The problem's columns in the table."""
        return {
            "H": self.heads,
            "d": self.head_dim,
            "N": _joined(self.q_lens),
            "M": _joined(self.all_kv_lens),
            "mask": self.mask_words,
            "bias": self.bias_heads,
            "page": self.page_size,
            "dtype": self.dtype,
        }

    @property
    def mask_words(self) -> str:
        """``causal``, ``window 3,0``, ``contexts 3/0 targets 4/4 by 2``, ..."""
        if self.intervals:
            return "intervals"
        words = "causal" if self.window == CAUSAL else f"window {self.window[0]},{self.window[1]}"
        words += f" contexts {_joined(self.contexts)}" if self.contexts else ""
        if self.targets:
            words += f" targets {_joined(self.targets)} by {self.target_group_size}"
        return words

    def __str__(self) -> str:
        parts = [f"H={self.heads} d={self.head_dim} N={_joined(self.q_lens)}"]
        parts += [f"M={_joined(self.kv_lens)}"] if self.kv_lens else []
        parts += [self.mask_words]
        parts += [f"bias of {self.bias_heads}"] if self.bias_heads else []
        parts += [f"pages of {self.page_size}"] if self.page_size else []
        parts += [f"alpha={self.alpha:g}"] if self.alpha is not None else []
        parts += [self.dtype] if self.dtype else []
        parts += [f"{self.inputs} inputs"] if self.inputs != "normal" else []
        return " ".join(parts)


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parses lengths like ``100/17/1``. Raises :class:`InvalidProblem`."""
    try:
        return tuple(int(word) for word in text.split("/"))
    except ValueError:
        raise InvalidProblem(
            f"{text!r} is no list of numbers", "It is a number a sequence: 100/17/1"
        ) from None


def _joined(values: tuple[int, ...] | None) -> str:
    return "/".join(map(str, values or ()))
