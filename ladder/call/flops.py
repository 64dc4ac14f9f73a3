"""What ``torch.utils.flop_counter.FlopCounterMode`` counts for the ladder's operators.

As torch does for its own attention, all pairs of a query and a key of the same sequence count, also those
that a mask hides, and a backward pass counts five products. The tables of the ladder count pairs that a query
sees: there a causal mask halves the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

from ladder.errors import UnsupportedProblem

#: Products of two matrices, each with two operations per element.
_FORWARD, _BACKWARD = 2, 5


def counts_attention(packet: Any) -> None:
    """``packet`` takes query (B, H, N, d), key and value (B, Hkv, M, d) first."""

    def formula(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
        batch, heads, q_len, head_dim = query
        return 2 * batch * heads * q_len * key[2] * (head_dim + value[3])

    _register(packet, formula)


def counts_gradients(packet: Any) -> None:
    """``packet`` takes d_o, d_lse, and then what attention takes."""

    def formula(_: Any, __: Any, query: Sequence[int], key: Sequence[int], *___: Any, **____: Any) -> int:
        batch, heads, q_len, head_dim = query
        return 2 * _BACKWARD * batch * heads * q_len * key[2] * head_dim

    _register(packet, formula)


def counts_sequences(packet: Any, pairs: Callable[..., int], *, first: int = 0) -> None:
    """``packet`` takes query (..., H, ..., d) as its argument number ``first``, 0 for a forward pass;
    ``pairs`` says from the arguments after that how many pairs there are of a query and a key.
    """
    products = _BACKWARD if first else _FORWARD

    def formula(*arguments: Any, **_: Any) -> int:
        query, *others = arguments[first:]
        heads, head_dim = query.shape[1], query.shape[-1]
        return 2 * products * heads * head_dim * pairs(query, *others)

    _register(packet, formula, get_raw=True)


def pairs_of_offsets(query: Tensor, key: Tensor, value: Tensor, q: Tensor, k: Tensor | None, *_: Any) -> int:
    """Of sequences that offsets (B + 1) give."""
    del query, key, value
    q = _known(q)
    return int((q.diff().long() * _known(q if k is None else k).diff().long()).sum())


def pairs_of_cache(query: Tensor, k_cache: Tensor, v_cache: Tensor, seqused_k: Tensor, *_: Any) -> int:
    """Of queries (B, H, N, d) and the keys that each sequence has."""
    del k_cache, v_cache
    return query.shape[2] * int(_known(seqused_k).sum())


def _register(packet: Any, formula: Callable[..., int], *, get_raw: bool = False) -> None:
    register_flop_formula(packet, get_raw=get_raw)(formula)
    # A counter copies torch's formulas when it is made, which may be before the ladder's first use.
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(counter := getattr(mode, "counter", None), FlopCounterMode):
            counter.flop_registry[packet] = flop_registry[packet]


def _known(lengths: Tensor) -> Tensor:
    if is_fake(lengths) or lengths.is_meta:
        raise UnsupportedProblem(
            "the operations of sequences cannot be counted: tensors without data do not say their lengths",
            "Count them with tensors on a CPU or a GPU.",
        )
    return lengths
