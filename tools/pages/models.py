"""What the ladder's attention does in each architecture of the installed transformers: docs/models.md.

    python -m tools.pages.models [MODEL_TYPE ...]

writes the page; with names, only prints their outcomes. A small random model of each architecture that builds
a causal mask, or is a masked language model, runs with eager attention and with the ladder's. Kernels are not
run: :func:`plain_attention` computes, in float32, exactly what the model asks ``ladder.attention`` for.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

import ladder
from ladder.errors import UnsupportedProblem

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- outcomes, by tools/pages/models.py -->", "<!-- end -->"
#: Outcomes of a case.
RIGHT, WRONG, REFUSED, NONE = "right", "**wrong**", "refused", "-"
#: Outcomes of an architecture without cases.
REFUSED_WHEN_MADE, OTHER_INPUTS, NOT_JUDGED = "refused when made", "no token ids", "not judged"
#: The largest deviation from eager attention, relative to the largest output, that is a rounding error.
_ROUNDING = 1e-4
#: Parameters of a small model.
_LARGEST = 5_000_000
_TOKENS = torch.arange(24).view(2, 12) * 5 % 60 + 2

_BUILDS_CAUSAL_MASK = re.compile(
    r"create_(causal|sliding_window_causal|chunked_causal)_mask|masks_for_generate"
)
_SMALL = {
    64: "vocab_size hidden_size d_model n_embd dim embedding_size embed_dim decoder_hidden_size "
    "word_embed_proj_dim encoder_hidden_size hidden_dim emb_dim intermediate_size ffn_dim d_ff "
    "encoder_ffn_dim decoder_ffn_dim n_inner moe_intermediate_size shared_expert_intermediate_size "
    "ffn_hidden_size moe_shared_expert_intermediate_size shared_intermediate_size max_position_embeddings "
    "n_positions n_ctx max_seq_len",
    32: "head_dim d_kv v_head_dim",
    16: "qk_rope_head_dim qk_nope_head_dim rotary_dim mamba_d_state ssm_state_size state_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts",
    1: "num_key_value_heads num_kv_heads num_experts_per_tok moe_k moe_topk top_k_experts n_group topk_group",
    0: "pad_token_id bos_token_id eos_token_id decoder_start_token_id",
}
#: Where one key and value head is not enough, or their number is the queries'.
_TWO_KV_HEADS = {
    *(
        "axk1",
        "axk2",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "diffllama",
        "glm4_moe_lite",
        "glm_moe_dsa",
    ),
    *("kimi_linear", "longcat_flash", "minicpm3", "sarvam_mla", "youtu", "dots3_note_text", "bailing_hybrid"),
}


@dataclass(frozen=True)
class Outcome:
    """What an architecture does: ``made`` is "" or why it has no cases."""

    made: str = ""
    is_causal: bool = False
    cases: tuple[str, ...] = ()


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
    **choices: Any,
) -> tuple[Tensor, Tensor]:
    """What :func:`ladder.attention` is documented to compute of the same arguments, in float32 of torch, with
    an lse of 0, which no model reads.
    """
    assert dropout_p == 0 and (enable_gqa or query.shape[1] == key.shape[1])
    group = query.shape[1] // key.shape[1]
    q, k, v = (
        query.float(),
        key.float().repeat_interleave(group, 1),
        value.float().repeat_interleave(group, 1),
    )
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, columns = scores.shape[2:]
    i, j = torch.arange(rows)[:, None], torch.arange(columns)
    seen = j <= i if is_causal else torch.ones(rows, columns, dtype=torch.bool)
    left, right = window_size
    position = i + columns - rows
    seen = seen & (j >= position - left) if left >= 0 else seen
    seen = seen & (j <= position + right) if right >= 0 else seen
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        sink = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], dim=3)
    weights = scores.softmax(dim=3)[..., :columns].nan_to_num(0)
    o = (weights @ v).to(query.dtype)
    return o, o.new_zeros(o.shape[:3])


def blind_attention(*arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """Without any mask: models that it does not change have none to get wrong."""
    return plain_attention(*arguments, **{**named, "is_causal": False, "window_size": (-1, -1)})


@contextmanager
def computed_by(function: Callable[..., Any]) -> Iterator[None]:
    """Models call this function in place of :func:`ladder.attention`."""
    module = sys.modules[ladder.register_attention.__module__]
    with patch.object(module, "attention", function):
        yield


#: What follows a model type's name where its masked language model is meant.
_ENCODER = ", encoder"


def architectures() -> list[str]:
    """Model types that build a causal mask, as decoders where they are either, and masked language models."""
    root = Path(transformers.__file__).parent / "models"
    builds = {
        path.parent.name
        for path in root.glob("*/modeling_*.py")
        if _BUILDS_CAUSAL_MASK.search(path.read_text(encoding="utf-8"))
    }
    kinds = {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *modeling_auto.MODEL_MAPPING_NAMES}
    masked = [name + _ENCODER for name in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES]
    return sorted([*(name for name in kinds if model_type_to_module_name(name) in builds), *masked])


def _shrink(config: Any, kv_heads: int) -> None:
    for part in vars(config).values():
        if isinstance(part, transformers.PreTrainedConfig):
            _shrink(part, kv_heads)
    for value, names in _SMALL.items():
        for name in names.split():
            try:
                given = getattr(config, name, None)
                wants = type(given) is int or (name == "head_dim" and hasattr(config, name) and given is None)
                if wants:
                    setattr(
                        config, name, kv_heads if name in ("num_key_value_heads", "num_kv_heads") else value
                    )
            except Exception:
                continue  # transformers' own checks: an attribute of each layer, or one that is derived
    for name in (
        "layer_types",
        "layers_block_type",
        "mlp_layer_types",
        "attention_layers",
        "attention_types",
    ):
        kinds = vars(config).get(name)
        if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds) and kinds:
            different = sorted(dict.fromkeys(kinds), key=lambda kind: "attention" not in kind.split("_"))
            vars(config)[name] = (different * 2)[:2]


def small_model(name: str, attention: str) -> Any:
    """A model with random weights, the same for each attention."""
    kind = name.removesuffix(_ENCODER)
    config = CONFIG_MAPPING[kind]()
    _shrink(config, 2 if kind in _TWO_KV_HEADS else 1)
    made_by: Any = AutoModel
    if kind != name:
        made_by = AutoModelForMaskedLM
    elif kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        made_by = AutoModelForCausalLM
        config.is_decoder = True
    with torch.device("meta"):
        size = sum(x.numel() for x in made_by.from_config(config, attn_implementation=attention).parameters())
    if size > _LARGEST:
        raise ValueError(f"{size} parameters: the configuration has sizes that _SMALL does not name")
    torch.manual_seed(0)
    model = made_by.from_config(config, attn_implementation=attention).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def _output(model: Any, tokens: Tensor, **named: Any) -> Any:
    """What the model makes of these tokens, in a decoder, too, where it has one."""
    decoders = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    return model(input_ids=tokens, **decoders, **named)


def _numbers(outputs: Any) -> Tensor:
    found = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    assert isinstance(found, Tensor)
    return found


def _all_tokens(model: Any) -> Tensor:
    return _numbers(_output(model, _TOKENS))


def _padded(model: Any, hidden: slice) -> Tensor:
    mask = torch.ones_like(_TOKENS)
    mask[0, hidden] = 0
    return _numbers(_output(model, _TOKENS, attention_mask=mask)).flatten(0, 1)[mask.flatten().bool()]


def _after_a_cache(model: Any, tokens: int) -> Tensor:
    begun = _output(model, _TOKENS[:, :-tokens], use_cache=True)
    return _numbers(_output(model, _TOKENS[:, -tokens:], past_key_values=begun.past_key_values))


def _packed(model: Any) -> Tensor:
    positions = torch.tensor([[*range(5), *range(7)]]).expand(2, -1)
    return _numbers(_output(model, _TOKENS, position_ids=positions, use_cache=False))


CASES: dict[str, Callable[[Any], Tensor]] = {
    "a batch": _all_tokens,
    "padded on the left": lambda model: _padded(model, slice(0, 3)),
    "on the right": lambda model: _padded(model, slice(-3, None)),
    "a token after a cache": lambda model: _after_a_cache(model, 1),
    "3 tokens after a cache": lambda model: _after_a_cache(model, 3),
    "packed by position_ids": _packed,
}


def _outcome_of_case(case: Callable[[Any], Tensor], model: Any, eager: Any) -> str:
    try:
        expected = case(eager)
    except Exception:
        return NONE  # the architecture has no such case
    try:
        found = case(model)
    except UnsupportedProblem:
        return REFUSED
    return RIGHT if _deviation(found, expected) < _ROUNDING else WRONG


def _deviation(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@torch.no_grad()
def outcome(name: str, attention: Callable[..., Any] = plain_attention) -> Outcome:
    """What the architecture does with this in place of :func:`ladder.attention`."""
    ladder.register_attention()
    try:
        model, eager = small_model(name, "ladder"), small_model(name, "eager")
    except UnsupportedProblem:
        return Outcome(REFUSED_WHEN_MADE)
    except Exception:
        return Outcome(NOT_JUDGED)
    if model.main_input_name != "input_ids":
        return Outcome(OTHER_INPUTS)
    try:
        expected = _all_tokens(eager)
        with computed_by(blind_attention):
            is_causal = _deviation(_all_tokens(model), expected) > 100 * _ROUNDING
    except UnsupportedProblem:
        is_causal = True
    except Exception:
        return Outcome(NOT_JUDGED)
    with computed_by(attention):
        cases = tuple(_outcome_of_case(case, model, eager) for case in CASES.values())
    return Outcome("", is_causal, cases)


def table(outcomes: dict[str, Outcome]) -> str:
    """Architectures of the same outcome are one row."""
    rows = defaultdict(list)
    for name, found in outcomes.items():
        rows[found].append(f"`{name}`")
    lines = [
        f"transformers {transformers.__version__}, {len(outcomes)} architectures.",
        "",
        f"| | {' | '.join(CASES)} | architectures |",
        f"| --- {'| --- ' * len(CASES)}| --- |",
    ]
    for found, names in sorted(
        rows.items(), key=lambda row: (row[0].made, not row[0].is_causal, -len(row[1]))
    ):
        cases = " | ".join(found.cases or [NONE] * len(CASES))
        kind = found.made or ("causal" if found.is_causal else "no mask")
        lines.append(f"| {kind}, {len(names)} | {cases} | {' '.join(names)} |")
    return "\n".join(lines)


def page(outcomes: dict[str, Outcome]) -> str:
    """The page's text with this table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(outcomes)}\n\n{END}{rest.split(END)[1]}"


def judged(names: Iterable[str]) -> dict[str, Outcome]:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the models are tiny
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: outcome(name) for name in names}


def main() -> int:
    if names := sys.argv[1:]:
        for name, found in judged(names).items():
            print(name, found)
    else:
        PAGE.write_text(page(judged(architectures())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
