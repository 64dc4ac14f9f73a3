"""The ladder's attention in the models of Hugging Face's transformers.

    import ladder
    ladder.register_attention()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ladder")

The interfaces are ``transformers.AttentionInterface`` and ``transformers.AttentionMaskInterface``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from functools import cache, partial, wraps
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ladder.call.calls import attention
from ladder.call.mask_parts import Part, attend_parts, kept_parts_of
from ladder.call.runs import AUTO
from ladder.errors import LadderError, UnsupportedProblem

#: Arguments by which models ask for what no rung computes; None asks for nothing.
_REFUSED = {
    "position_bias": "a bias on the logits",
    "cache": "a paged cache of keys and values",
}


def register_attention(
    name: str = "ladder",
    *,
    stage: str = AUTO,
    arch: str | None = None,
    backward: str = AUTO,
    deterministic: bool = False,
) -> None:
    """Makes :func:`ladder.attention`, with these choices, an ``attn_implementation`` of transformers.

    Sliding windows, softcap and sinks are computed, in f16 and bf16 and the head dims of their rungs. So are
    padding, tokens after a cache, static caches and packed sequences: with one call for the batches and
    queries whose keys are one range. A model that asks for what no rung computes raises
    :class:`UnsupportedProblem` when it is called: dropout, masks of another form, a mask in a compiled graph.
    A model that computes attention without transformers' interface raises it when it is made, as with "sdpa".
    Raises :class:`LadderError` without transformers.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> ladder.register_attention()
    >>> config = LlamaConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64)
    >>> model = LlamaForCausalLM._from_config(config, attn_implementation="ladder")
    >>> model(torch.ones(1, 9, dtype=torch.long)).logits.shape
    torch.Size([1, 9, 32000])
    """
    if importlib.util.find_spec("transformers") is None:
        raise LadderError("transformers is not installed", "pip install 'flash-ladder[transformers]'")
    from transformers import AttentionInterface, AttentionMaskInterface

    choices = {"stage": stage, "arch": arch, "backward": backward, "deterministic": deterministic}
    AttentionInterface.register(name, partial(_forward, choices))
    AttentionMaskInterface.register(name, _mask)
    _names.add(name)
    _refuse_models_without_interface()


#: The names under which the ladder's attention is registered.
_names: set[str] = set()


@cache
def _refuse_models_without_interface() -> None:
    """Makes every model whose attention has one of our names check its class. transformers' own checks, which
    know only its own names, have no hook for others.
    """
    from transformers import PreTrainedModel

    models: Any = PreTrainedModel
    check = models.get_correct_attn_implementation

    @wraps(check)
    def checked(self: Any, requested: str | None, *arguments: Any, **named: Any) -> Any:
        if requested in _names:
            _require_interface(type(self))
        return check(self, requested, *arguments, **named)

    models.get_correct_attn_implementation = checked


def _require_interface(model: Any) -> None:
    """Raises :class:`UnsupportedProblem` unless attention in this class of models calls what is registered
    and computes the causal mask where :func:`_mask` returns None, as with "sdpa" and "flash_attention_2".
    """
    # Without the backend, those that support only flash_attention_2 have causal layers that do not say so.
    takes_none = model._supports_sdpa or (model._supports_flash_attn and model._supports_attention_backend)
    if not (takes_none and model._can_set_attn_implementation()):
        raise UnsupportedProblem(
            f"{model.__name__} does not compute its attention through transformers' attention interface",
            'attn_implementation="eager" works for this model.',
        )


@cache
def _require_interface_of(config: Any) -> None:
    """:func:`_require_interface` for the models of a configuration: they may have been made with another
    attention.
    """
    from transformers import PreTrainedModel

    module = sys.modules.get(config.__module__.replace(".configuration_", ".modeling_"))
    for model in vars(module).values() if module else ():
        if isinstance(model, type) and issubclass(model, PreTrainedModel) and model.config_class is config:
            _require_interface(model)


def _mask(**arguments: Any) -> Tensor | None:
    """None where is_causal, aligned to the upper left as torch's, or the layer's sliding window is enough;
    else the mask (B, 1, N, M).
    """
    from transformers.masking_utils import sdpa_mask

    config: Any = arguments["config"]
    if not torch.compiler.is_compiling():
        kind: Any = type(config)
        _require_interface_of(kind)
    if getattr(config, "use_bidirectional_attention", False):
        arguments["allow_is_causal_skip"] = False  # the layers are not causal by themselves
    mask: Tensor | None = sdpa_mask(**arguments)
    window = arguments.get("local_size")
    if mask is None or window is None or not arguments.get("allow_is_causal_skip", True):
        return mask
    rows, columns = mask.shape[-2:]
    queries = torch.arange(rows, device=mask.device)[:, None] + arguments.get("q_offset", 0)
    keys = torch.arange(columns, device=mask.device) + arguments.get("kv_offset", 0)
    # ladder.attention's windows are aligned to the lower right, and is_causal, which _forward passes where
    # the window hides no key, to the upper left.
    is_aligned = (window < columns or rows in (1, columns)) and bool(queries[-1, 0] == keys[-1])
    is_window = is_aligned and torch.equal(
        mask, ((keys <= queries) & (keys > queries - window)).expand_as(mask)
    )
    return None if is_window else mask


def _forward(
    choices: Mapping[str, Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it: query (B, H, N, d), key and value (B, Hkv, M, d) -> o (B, N, H, d)."""
    for name, what in _REFUSED.items():
        if others.get(name) is not None:
            _refuse(what)
    given = {
        "dropout_p": dropout,
        "scale": scaling,
        "enable_gqa": query.shape[1] != key.shape[1],
        "softcap": others.get("softcap"),
        **choices,
    }
    sinks = others.get("s_aux")
    if attention_mask is not None:
        parts = _parts(attention_mask, sliding_window)
        attend = partial(attention, **given)
        o, _ = attend_parts(attend, parts, query, key, value, sliding_window, sinks)
        return o.transpose(1, 2).contiguous(), None
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    cuts = sliding_window is not None and sliding_window < key.shape[2]
    o, _ = attention(
        *(query, key, value),
        is_causal=is_causal and query.shape[2] > 1 and not cuts,
        window_size=(sliding_window - 1, 0) if cuts and sliding_window else (-1, -1),
        sinks=sinks,
        **given,
    )
    return o.transpose(1, 2).contiguous(), None


def _parts(mask: Tensor, window: int | None) -> list[Part]:
    """The parts of a mask. Refuses one that has none."""
    found: list[Part] | None = None
    if isinstance(mask, Tensor) and not torch.compiler.is_compiling():
        found = kept_parts_of(mask, window)
    if found is None:
        _refuse(
            "a mask in a compiled graph"
            if torch.compiler.is_compiling()
            else "an attention mask in which the keys of a query are not one range"
        )
    return found


def _refuse(what: str) -> NoReturn:
    raise UnsupportedProblem(
        f"the model asks for {what}, which no rung computes", 'attn_implementation="eager" does.'
    )
