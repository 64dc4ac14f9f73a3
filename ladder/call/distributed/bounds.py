"""Bounds on the errors of attention that is computed in parts: those of the parts, carried through merging.

Each part is one call of a rung, whose errors :mod:`ladder.operations.attention.reference` bounds: of o by B,
of lse by L, for its own keys. u = 2^-24, and u_T is the rounding of the tensors' dtype (2^-11 for f16, 2^-8
for bf16, 2^-24 for f32). Merging o_a, lse_a with o_b, lse_b, with the exact share w = sigmoid(lse_b - lse_a):

* The difference errs by D = L_a + L_b + u |lse_b - lse_a|, so the share by at most w (1 - w) (exp(D) - 1) +
  12 u w, the last term for the sigmoid in fp32, on a GPU with approximations of exp2 and the quotient.
* o errs by (1 - w) B_a + w B_b + |error of the share| (|o_b - o_a| + B_a + B_b) + 4 u (|o_a| + |o_b|): the
  lerp takes at most four roundings.
* lse errs by (1 - w) L_a + w L_b + u (|lse| + 4).

o is rounded at the end, which adds u_T |o|, and 2^-25 in f16 for what is below 2^-14.

Gradients are sums over parts of the terms of the whole problem, whose bounds
:mod:`ladder.operations.attention_backward.reference` gives for any order of summation. Parts add:

* Each part's dq, dk and dv is rounded: u_T of it (and 2^-25 in f16), and the sum of P parts in fp32 errs by
  (P + 1) u of the sum of their sizes.
* The lse that the rungs get errs by L, which changes all weights of a row by exp(L) - 1 of themselves: P and
  dS change by so much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ladder.call.distributed.calls import SCHEDULES
from ladder.call.distributed.layout import Part, Sizes, shard, shard_lengths, unshard
from ladder.operations import BackwardProblem, Reference, attention_float64, get_operation, reference

_U = 2.0**-24
_ROUNDING = {torch.float32: _U, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_F16_SUBNORMAL = 2.0**-25


def reference_in_parts(
    q: Tensor, k: Tensor, v: Tensor, schedule: str, ranks: int, *, is_causal: bool, scale: float
) -> Reference:
    """o (B, H, N, d) and lse (B, H, N) in float64, of q (B, H, N, d), k and v (B, Hkv, N, d), the whole
    tensors, with the bounds for a schedule over so many ranks.
    """
    if schedule == "ulysses":
        return reference(q, k, v, is_causal=is_causal, scale=scale)
    sizes = _sizes(q, k, schedule, ranks, is_causal)
    found = []
    for rank in range(ranks):
        merged = None
        for part in SCHEDULES[schedule].parts(sizes, rank):
            here = _positions(sizes, schedule, rank)[part.queries]
            there = _keys_of(part, sizes, schedule)
            exact = reference(
                q[:, :, here], k[:, :, there], v[:, :, there], is_causal=part.is_causal, scale=scale
            )
            one = _Bounded(exact)
            merged = one if merged is None else merged.with_part(one, part.queries)
        assert merged is not None
        found.append(merged)
    o, lse, o_limit, lse_limit = (
        unshard([*x], schedule) for x in zip(*map(_Bounded.tensors, found), strict=True)
    )
    rounding = _ROUNDING[q.dtype] * o.abs() + (_F16_SUBNORMAL if q.dtype == torch.float16 else 0.0)
    return Reference({"o": o, "lse": lse}, {"o": o_limit + rounding, "lse": lse_limit})


class _Bounded:
    """o (B, H, n, d) and lse (B, H, n) of some keys, with bounds on the errors of each element."""

    def __init__(self, exact: Reference) -> None:
        self.o, self.lse = exact.outputs["o"], exact.outputs["lse"]
        self.o_limit = torch.as_tensor(exact.limits["o"]).expand_as(self.o).clone()
        self.lse_limit = torch.full_like(self.lse, exact.bounds["lse"])

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.o, self.lse, self.o_limit, self.lse_limit

    def with_part(self, other: _Bounded, queries: slice) -> _Bounded:
        """This, with the part of these queries merged into it."""
        o, lse, o_limit, lse_limit = (x[:, :, queries] for x in self.tensors())
        apart = other.lse - lse
        share = torch.sigmoid(apart)
        off = torch.expm1(lse_limit + other.lse_limit + _U * apart.abs())
        share_limit = (share * (1 - share) * off + 12 * _U * share)[..., None]
        w = share[..., None]
        between = (other.o - o).abs() + o_limit + other.o_limit
        rounded = 4 * _U * (o.abs() + other.o.abs())
        o_limit.copy_((1 - w) * o_limit + w * other.o_limit + share_limit * between + rounded)
        lse_limit.copy_((1 - share) * lse_limit + share * other.lse_limit + _U * (lse.abs() + 4))
        o.lerp_(other.o, w)
        lse.copy_(torch.logaddexp(lse, other.lse))
        return self


def gradients_in_parts(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    d_o: Tensor,
    d_lse: Tensor,
    schedule: str,
    ranks: int,
    *,
    is_causal: bool,
    scale: float,
) -> Reference:
    """dq, dk and dv in float64, with the bounds for a schedule over so many ranks. o and lse are those that
    the forward pass returned; all are whole tensors.
    """
    batch, heads, rows, head_dim = q.shape
    dtype = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[q.dtype]
    problem = BackwardProblem(
        batch, heads, rows, rows, head_dim, k.shape[1], dtype, is_causal, scale, lse_gradient=True
    )
    inputs = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o, "d_lse": d_lse}
    whole = get_operation("attention_backward").reference(problem, {**inputs, "sinks": None})
    terms = _Terms(inputs, is_causal, scale)
    added = terms.of_lse()
    if schedule != "ulysses":
        sizes = _sizes(q, k, schedule, ranks, is_causal)
        sums = {name: torch.zeros_like(x) for name, x in added.items()}
        for rank in range(ranks):
            here = _positions(sizes, schedule, rank)
            for part in SCHEDULES[schedule].parts(sizes, rank):
                terms.add_sizes(sums, here[part.queries], _keys_of(part, sizes, schedule))
        subnormal = ranks * _F16_SUBNORMAL if q.dtype == torch.float16 else 0.0
        each = _ROUNDING[q.dtype] + (ranks + 1) * _U
        added = {name: x + each * sums[name] + subnormal for name, x in added.items()}
    limits = {name: torch.as_tensor(limit) + added[name] for name, limit in whole.limits.items()}
    return Reference(whole.outputs, limits)


class _Terms:
    """P and dS (B, H, N, N) of a small problem in float64, and the gradients that some of them make."""

    def __init__(self, inputs: dict[str, Tensor], is_causal: bool, scale: float) -> None:
        q, k, v, d_o = (inputs[name].double() for name in ("q", "k", "v", "d_o"))
        self.group = q.shape[1] // k.shape[1]
        self.q, self.d_o, self.scale = q, d_o, scale
        self.k, v = (x.repeat_interleave(self.group, 1) for x in (k, v))
        s = q @ self.k.mT * scale
        if is_causal:
            s.masked_fill_(torch.ones(s.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
        o, lse = attention_float64(inputs["q"], inputs["k"], inputs["v"], is_causal=is_causal, scale=scale)
        delta = (o * d_o).sum(-1) - inputs["d_lse"].double()
        self.p = torch.exp(s - lse[..., None])
        self.ds = self.p * (d_o @ v.mT - delta[..., None])
        self.of_weights = torch.expm1((inputs["lse"].double() - lse).abs())[..., None]

    def of_lse(self) -> dict[str, Tensor]:
        """What the error of lse changes."""
        p, ds = self.of_weights * self.p, self.of_weights * self.ds.abs()
        dk, dv = abs(self.scale) * ds.mT @ self.q.abs(), p.mT @ self.d_o.abs()
        dq = abs(self.scale) * ds @ self.k.abs()
        return {"dq": dq, "dk": self._of_groups(dk), "dv": self._of_groups(dv)}

    def add_sizes(self, sums: dict[str, Tensor], queries: Tensor, keys: Tensor) -> None:
        """Adds the sizes of what these queries and keys contribute."""
        p, ds = (x[:, :, queries][..., keys] for x in (self.p, self.ds))
        dk, dv = self.scale * ds.mT @ self.q[:, :, queries], p.mT @ self.d_o[:, :, queries]
        sums["dq"][:, :, queries] += (self.scale * ds @ self.k[:, :, keys]).abs()
        sums["dk"][:, :, keys] += self._of_groups(dk).abs()
        sums["dv"][:, :, keys] += self._of_groups(dv).abs()

    def _of_groups(self, x: Tensor) -> Tensor:
        """The sums over the heads of each group."""
        return x.unflatten(1, (-1, self.group)).sum(2)


def _sizes(q: Tensor, k: Tensor, schedule: str, ranks: int, is_causal: bool) -> Sizes:
    lengths = shard_lengths(q.shape[2], ranks, schedule)
    return Sizes(q.shape[0], q.shape[1], k.shape[1], q.shape[3], lengths, q.element_size(), is_causal)


def _positions(sizes: Sizes, schedule: str, rank: int) -> Tensor:
    """The numbers in the whole sequence of a rank's rows."""
    return shard(torch.arange(sizes.rows), rank, sizes.ranks, schedule, 0)


def _keys_of(part: Part, sizes: Sizes, schedule: str) -> Tensor:
    return torch.cat([_positions(sizes, schedule, source)[part.keys] for source in part.sources])
