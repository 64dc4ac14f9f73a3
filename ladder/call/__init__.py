"""Attention computed by a rung: called like torch's own, as a torch operator, and in a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.call.arguments import Choices
    from ladder.call.calls import attention
    from ladder.call.decoding import decode_attention
    from ladder.call.forward import inputs_of, prepared
    from ladder.call.gating import norm_gate
    from ladder.call.gradients import attention_backward, gradient_inputs, prepared_gradients
    from ladder.call.hstu import hstu_attention
    from ladder.call.huggingface import register_attention
    from ladder.call.layers import HSTULayer
    from ladder.call.transforms import autocast, must_be_deterministic
    from ladder.call.varlen import (
        prepared_sequences,
        varlen_attention,
        varlen_backward_operator,
        varlen_operator,
    )

__getattr__ = door(__name__)
