"""The ranks that compute one attention together, and what each of them does alone: parts of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

from ladder.call import attention, attention_backward, varlen_backward_operator, varlen_operator
from ladder.call.distributed.layout import Part, Sizes, offsets_in, places
from ladder.call.distributed.timeline import span

#: q, k, v, o and lse, as the backward pass needs them.
Saved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
#: The offsets of sequences among the queries and among the keys of a part.
Marks = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Rungs:
    """What computes a rank's parts. The fields are arguments of :func:`ladder.attention`."""

    scale: float | None
    stage: str
    backward: str
    arch: str
    deterministic: bool

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, marks: Marks | None
    ) -> tuple[Tensor, Tensor]:
        """A part: o (B, H, n, d) and lse (B, H, n) of these queries and keys alone."""
        with span("compute", q.device):
            if marks is not None:
                o, lse = varlen_operator(
                    *map(as_tokens, (q, k, v)),
                    *marks,
                    q.shape[2],
                    k.shape[2],
                    self.scale,
                    _window(is_causal),
                    True,
                    self.stage,
                    self.arch,
                )
                return o.transpose(0, 1)[None], lse[None]
            return attention(
                q,
                k,
                v,
                is_causal=is_causal,
                scale=self.scale,
                enable_gqa=True,
                stage=self.stage,
                arch=self.arch,
            )

    def gradients(
        self, d_o: Tensor, d_lse: Tensor | None, saved: Saved, is_causal: bool, marks: Marks | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A part of the gradients: what its keys contribute to dq, and its queries to dk and dv.

        ``saved`` are q, k, v of the part and o and lse of all keys: P = exp(S - lse) and delta = rowsum(dO *
        O) are then those of the whole attention, and each of its terms is in exactly one part.
        """
        with span("compute", d_o.device):
            *tensors, o, lse = saved
            if marks is not None:
                found = varlen_backward_operator(
                    as_tokens(d_o),
                    None if d_lse is None else d_lse[0].contiguous(),
                    *map(as_tokens, tensors),
                    *marks,
                    as_tokens(o),
                    lse[0].contiguous(),
                    self.scale,
                    _window(is_causal),
                    self.backward,
                    self.arch,
                    self.deterministic,
                )
                d_q, d_k, d_v = (x.transpose(0, 1)[None] for x in found)
                return d_q, d_k, d_v
            d_q, d_k, d_v, _ = attention_backward(
                d_o,
                None if d_lse is None else d_lse.contiguous(),
                *tensors,
                o.contiguous(),
                lse.contiguous(),
                is_causal,
                self.scale,
                self.backward,
                self.arch,
                self.deterministic,
            )
            return d_q, d_k, d_v


@dataclass(frozen=True)
class Team:
    """A group, this process's ``rank`` in it, and the problem that all ranks have agreed on.

    ``schedule`` says where the ranks' rows lie, ``copies`` whether copy engines may carry blocks,
    because all ranks are in one host and none forbids it.
    """

    group: dist.ProcessGroup
    rank: int
    sizes: Sizes
    schedule: str
    copies: bool
    rungs: Rungs

    @property
    def ranks(self) -> int:
        return self.sizes.ranks

    def marks(self, part: Part, device: torch.device) -> Marks | None:
        """The offsets of the sequences in a part of this rank; None without sequences."""
        if self.sizes.offsets is None:
            return None
        queries = places(self.sizes, self.schedule, self.rank, part.queries)
        keys = [
            place for source in part.sources for place in places(self.sizes, self.schedule, source, part.keys)
        ]
        found = (on_device(device, offsets_in(self.sizes.offsets, rows)) for rows in (queries, keys))
        return next(found), next(found)

    def whole_marks(self, device: torch.device) -> Marks | None:
        """The offsets in the whole sequence, twice; None without sequences."""
        return None if self.sizes.offsets is None else (on_device(device, self.sizes.offsets),) * 2


def as_tokens(x: Tensor) -> Tensor:
    """(1, H, n, d) -> (n, H, d), as sequences of different lengths are."""
    return x[0].transpose(0, 1).contiguous()


def _window(is_causal: bool) -> list[int]:
    """Where it is causal, a sequence's queries and keys are the same rows: both alignments are the same."""
    return [-1, 0] if is_causal else [-1, -1]


@lru_cache(256)
def on_device(device: torch.device, offsets: tuple[int, ...]) -> Tensor:
    """The offsets on a device: the same tensor for the same ones, which is read only once."""
    return torch.tensor(offsets, dtype=torch.int32, device=device)


def stacked(k: Tensor, v: Tensor) -> Tensor:
    """K and V as one tensor (2, B, Hkv, m, d), which takes one message."""
    return torch.stack((k, v))
