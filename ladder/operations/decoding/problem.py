"""The decoding problem: sizes, the sequences' lengths, pages, mask and scale, validated on construction."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.attention.problem import Problem, described
from ladder.operations.base import AnyProblem, check_size, parse_sizes

SIZE_TEXT = ("B,H,Hkv,N,M,d", "2,8,2,1,1000,64")
#: The most queries per sequence. Mirrors stages/include/ladder/decoding.h.
MOST_QUERIES = 8
#: More parts of the keys than any GPU has blocks for would only take memory.
MOST_SPLITS = 1024
#: Page sizes are multiples of it.
PAGE_STEP = 16


def check_splits(count: object) -> None:
    """Raises :class:`InvalidProblem` unless ``count`` is a number of parts, or 0 to let the rung choose."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_SPLITS:
        raise InvalidProblem(
            f"num_splits is {count!r}; it must be a whole number up to {MOST_SPLITS:,}, "
            "0 to let the rung choose"
        )


@dataclass(frozen=True)
class DecodingProblem(AnyProblem):
    """q (B, H, N, d) and a cache of up to M keys and values per sequence -> o (B, H, N, d) and lse (B, H, N).

    ``lengths`` are the numbers of keys that the sequences have, from 0 to M; all have M if None. A sequence
    without keys has o = 0 and lse = -inf. With ``is_causal`` the queries are the last tokens of their
    sequence (a mask aligned to the lower right, unlike attention's): query i of N sees the keys up to i +
    length - N. A ``window`` of W then hides all but the last W keys before the query's own; a ``softcap`` and
    ``sinks`` are those of :class:`ladder.Problem`. With sinks, a sequence without keys has lse = sink.

    Without a ``page_size`` the caches are (B, Hkv, M, d). With one, a multiple of :data:`PAGE_STEP`, they are
    pages (pages, Hkv, page_size, d), of which a table names those of each sequence. ``num_splits`` is the
    number of parts that the keys of each sequence are split into; the stage chooses if it is 0. With ``e4m3``
    the caches have elements of 8 bits, and the keys of a kv head are k_descale[head] times those of its
    cache, its values v_descale[head] times. The other fields are those of :class:`ladder.Problem`.

    Raises :class:`InvalidProblem`.
    """

    operation: ClassVar[str] = "decoding"

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
    lengths: tuple[int, ...] | None = None
    page_size: int = 0
    num_splits: int = 0
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    e4m3: bool = False

    def __post_init__(self) -> None:
        _ = self.attention  # checks what it shares with attention
        if self.q_len > MOST_QUERIES:
            raise UnsupportedProblem(
                f"N is {self.q_len}; decoding takes at most {MOST_QUERIES} queries per sequence",
                "ladder.attention takes any number, with window_size=(-1, 0) for the last of a sequence.",
            )
        if self.window is not None and not self.is_causal:
            raise InvalidProblem("a window needs is_causal: it is of keys before the query's own")
        if self.page_size:
            check_page_size(self.page_size)
        check_splits(self.num_splits)
        if self.lengths is not None:
            if len(self.lengths) != self.batch:
                raise InvalidProblem(
                    f"lengths are {self.lengths}; wanted {self.batch} lengths, one per sequence"
                )
            for b, length in enumerate(self.lengths):
                check_length(b, length, self.kv_len)

    @classmethod
    def parse(cls, text: str, **others: Any) -> DecodingProblem:
        """Parses ``"B,H,Hkv,N,M,d"`` from the command line."""
        batch, heads, kv_heads, q_len, kv_len, head_dim = parse_sizes(text, SIZE_TEXT)
        return cls(batch, heads, q_len, kv_len, head_dim, kv_heads, **others)

    @property
    def size_words(self) -> str:
        """The sizes as :meth:`parse` takes them."""
        sizes = (self.batch, self.heads, self.num_kv_heads, self.q_len, self.kv_len, self.head_dim)
        return ",".join(map(str, sizes))

    @property
    def attention(self) -> Problem:
        """The same as attention over all M keys of each sequence."""
        return Problem(
            self.batch,
            self.heads,
            self.q_len,
            self.kv_len,
            self.head_dim,
            kv_heads=self.kv_heads,
            dtype=self.dtype,
            scale=self.scale,
            inputs=self.inputs,
            window=(-1 if self.window is None else self.window, 0) if self.is_causal else None,
            softcap=self.softcap,
            sinks=self.sinks,
        )

    def of_sequences(self, count: int, length: int) -> Problem:
        """Attention over ``count`` sequences of one length, at least 1."""
        return replace(self.attention, batch=count, kv_len=length)

    @property
    def num_kv_heads(self) -> int:
        """Hkv."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def all_lengths(self) -> tuple[int, ...]:
        return (self.kv_len,) * self.batch if self.lengths is None else self.lengths

    @property
    def seen_lengths(self) -> tuple[int, ...]:
        """The number of keys of each sequence that a query sees."""
        if self.window is None:
            return self.all_lengths
        return tuple(min(length, self.window + self.q_len) for length in self.all_lengths)

    @property
    def table_width(self) -> int:
        """The number of pages per sequence in the table; 0 without pages."""
        return -(-self.kv_len // self.page_size) if self.page_size else 0

    @property
    def features(self) -> frozenset[str]:
        names = {
            "strides": self.strided,
            "pages": bool(self.page_size),
            "splits": bool(self.num_splits),
            "window": self.window is not None,
            "softcap": self.softcap is not None,
            "sinks": self.sinks,
            "e4m3": self.e4m3,
        }
        return frozenset(name for name, there in names.items() if there)

    @property
    def flops(self) -> float:
        """4 H N d for each key; with a window, for each key that a query of the sequence sees."""
        return 4.0 * self.heads * self.q_len * self.head_dim * sum(self.seen_lengths)

    @property
    def cache_bytes(self) -> int:
        """The bytes of the keys and values that the sequences' queries see: the least that must be read."""
        item = 1 if self.e4m3 else 4 if self.dtype == "f32" else 2
        return 2 * sum(self.seen_lengths) * self.num_kv_heads * self.head_dim * item

    @property
    def length_words(self) -> str | None:
        """``1000/20``; None if all sequences have M keys."""
        return None if self.lengths is None else "/".join(map(str, self.lengths))

    @property
    def command_options(self) -> str:
        words = ["--problem", self.size_words]
        words += ["--dtype", self.dtype] if self.dtype else []
        words += ["--causal"] if self.is_causal else []
        words += ["--scale", repr(self.scale)] if self.scale is not None else []
        words += ["--inputs", self.inputs] if self.inputs != "normal" else []
        words += ["--strided"] if self.strided else []
        words += ["--lengths", str(self.length_words)] if self.lengths is not None else []
        words += ["--page-size", str(self.page_size)] if self.page_size else []
        words += ["--splits", str(self.num_splits)] if self.num_splits else []
        words += ["--window", str(self.window)] if self.window is not None else []
        words += ["--softcap", repr(self.softcap)] if self.softcap is not None else []
        words += ["--sinks"] if self.sinks else []
        words += ["--e4m3"] if self.e4m3 else []
        return shlex.join(words)

    def __str__(self) -> str:
        parts = [
            *described(self),
            *([f"lengths {self.length_words}"] if self.lengths is not None else []),
            *([f"pages of {self.page_size}"] if self.page_size else []),
            *([f"{self.num_splits} splits"] if self.num_splits else []),
            *([f"window {self.window}"] if self.window is not None else []),
            *([f"softcap={self.softcap:g}"] if self.softcap is not None else []),
            *(["sinks"] if self.sinks else []),
            *(["cache in e4m3"] if self.e4m3 else []),
        ]
        return " ".join(parts)

    @property
    def softmax_scale(self) -> float:
        """The factor applied to q k."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else float(self.scale)


def check_page_size(page_size: Any) -> None:
    """Raises :class:`InvalidProblem` unless it is positive, and :class:`UnsupportedProblem` unless it is a
    multiple of :data:`PAGE_STEP`.
    """
    check_size("page_size", "keys per page", page_size)
    if page_size % PAGE_STEP:
        raise UnsupportedProblem(
            f"page_size is {page_size}; rungs take multiples of {PAGE_STEP}",
            "Usual are 16, 64, 128 and 256.",
        )


def check_length(b: int, length: Any, most: int) -> None:
    """Raises :class:`InvalidProblem` unless sequence b may have so many keys."""
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= most:
        raise InvalidProblem(
            f"sequence {b} has {length} keys; it may have 0 to {most}, as many as its cache holds"
        )
