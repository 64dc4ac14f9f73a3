"""Attention computed by a rung: called like torch's own, as a torch operator, and in a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.functional.calls import attention
    from ladder.functional.decoding import decode_attention
    from ladder.functional.forward import inputs_of, prepared
    from ladder.functional.gating import norm_gate
    from ladder.functional.gradients import attention_backward, gradient_inputs, prepared_gradients
    from ladder.functional.hstu import hstu_attention
    from ladder.functional.huggingface import register_attention
    from ladder.functional.layers import HSTULayer
    from ladder.functional.transforms import autocast
    from ladder.functional.varlen import (
        prepared_sequences,
        varlen_attention,
        varlen_backward_operator,
        varlen_operator,
    )

__getattr__ = door(__name__)
