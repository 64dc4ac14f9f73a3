"""Models of Hugging Face's transformers with the ladder's attention, beside their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rungs import named

import ladder
from ladder.errors import LadderError, UnsupportedProblem

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}
TOKENS = torch.arange(24).view(2, 12) * 5 % 64


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    ladder.register_attention()


def made(kind: str, attention: str, **changed: Any) -> Any:
    """A model with random weights, the same for each attention."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changed}, attn_implementation=attention)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def test_a_llama_gives_the_logits_and_gradients_of_eager_attention() -> None:
    found, expected = (made("Llama", attention) for attention in ("ladder", "eager"))
    outputs, wanted = (model(TOKENS, labels=TOKENS) for model in (found, expected))
    torch.testing.assert_close(outputs.logits, wanted.logits, rtol=1e-4, atol=1e-5)
    outputs.loss.backward()
    wanted.loss.backward()
    for ours, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)


def test_tokens_after_a_cache() -> None:
    found, expected = (made("Llama", attention) for attention in ("ladder", "eager"))
    with torch.no_grad():
        begun = found(TOKENS[:, :-1], use_cache=True)
        after = found(TOKENS[:, -1:], past_key_values=begun.past_key_values)
        wanted = expected(TOKENS)
    torch.testing.assert_close(begun.logits, wanted.logits[:, :-1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.logits, wanted.logits[:, -1:], rtol=1e-4, atol=1e-5)


def hidden(places: list[int]) -> Any:
    mask = torch.ones_like(TOKENS)
    mask[0, places] = 0
    return mask


LEFT, RIGHT = hidden([0, 1, 2]), hidden([9, 10, 11])


@pytest.mark.parametrize("mask", [LEFT, RIGHT], ids=["left", "right"])
def test_padding_gives_the_logits_and_gradients_of_eager_attention(mask: Any) -> None:
    found, expected = (made("Llama", attention) for attention in ("ladder", "eager"))
    # The logits of padding, which predict the token after it, are not compared.
    labels = TOKENS.masked_fill((mask == 0) | (mask.roll(1, 1) == 0), -100)
    outputs, wanted = (model(TOKENS, attention_mask=mask, labels=labels) for model in (found, expected))
    is_real = mask.bool()
    torch.testing.assert_close(outputs.logits[is_real], wanted.logits[is_real], rtol=1e-4, atol=1e-5)
    outputs.loss.backward()
    wanted.loss.backward()
    for ours, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)


def test_sequences_packed_by_position_ids() -> None:
    positions = torch.tensor([[*range(5), *range(7)]]).expand(2, -1)
    found, expected = (
        made("Llama", attention)(TOKENS, position_ids=positions, use_cache=False)
        for attention in ("ladder", "eager")
    )
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)


def chunked(model: Any, cache: str) -> Any:
    """The logits of the last 5 tokens after a cache, of which one batch is padded on the left."""
    kept = None
    if cache == "static":
        kept = transformers.StaticCache(config=model.config, max_cache_len=40)
    begun = model(TOKENS[:, :-5], attention_mask=LEFT[:, :-5], past_key_values=kept, use_cache=True)
    return model(TOKENS[:, -5:], attention_mask=LEFT, past_key_values=begun.past_key_values).logits.float()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("kind", "changed"), [("Llama", {}), ("Mistral", {"sliding_window": 4})])
def test_several_tokens_after_a_cache(kind: str, changed: dict[str, Any], cache: str) -> None:
    """In f16, beside eager attention in f32 with the same weights; without the padding it is another."""
    changed = {**changed, "head_dim": 64}
    with torch.no_grad():
        found = chunked(made(kind, "ladder", **changed).half(), cache)
        model = made(kind, "eager", **changed).half().float()
        expected, other = chunked(model, "dynamic"), model(TOKENS).logits[:, -5:]
    error = (found - expected).abs().max()
    assert error < 0.2 * (other - expected).abs().max(), error


def test_a_window_that_cuts_nothing_is_computed() -> None:
    found, expected = (made("Mistral", attention, sliding_window=16) for attention in ("ladder", "eager"))
    with torch.no_grad():
        torch.testing.assert_close(found(TOKENS).logits, expected(TOKENS).logits, rtol=1e-4, atol=1e-5)


EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}


@pytest.mark.parametrize(
    ("kind", "changed", "without"),
    [
        ("Mistral", {"head_dim": 64, "sliding_window": 4}, {"sliding_window": 99}),
        (
            "Gemma2",
            {"head_dim": 128, "sliding_window": 4, "attn_logit_softcapping": 0.1, "query_pre_attn_scalar": 1},
            {"attn_logit_softcapping": 50.0},
        ),
        ("GptOss", {"head_dim": 64, "sliding_window": 4, **EXPERTS}, {"sliding_window": 99}),
    ],
)
def test_windows_softcap_and_sinks(kind: str, changed: dict[str, Any], without: dict[str, Any]) -> None:
    """In f16, beside eager attention in f32 with the same weights; another model is told apart."""
    with torch.no_grad():
        found = made(kind, "ladder", **changed).half()(TOKENS).logits.float()
        expected, other = (
            made(kind, "eager", **fields).half().float()(TOKENS).logits
            for fields in (changed, {**changed, **without})
        )
    error = (found - expected).abs().max()
    assert error < 0.2 * (other - expected).abs().max(), error


def masked(model: Any) -> None:
    """With a key that only the last query does not see."""
    mask = torch.ones(12, 12, dtype=torch.bool).tril()
    mask[-1, 3] = False
    model(TOKENS, attention_mask=mask.expand(2, 1, 12, 12))


def trained(model: Any) -> None:
    model.train()(TOKENS)


@pytest.mark.parametrize(
    ("kind", "changed", "use", "message"),
    [
        ("Llama", {}, masked, "the keys of a query are not one range"),
        ("Llama", {"attention_dropout": 0.5}, trained, "dropout"),
        ("Gemma2", {}, lambda model: model(TOKENS), "softcap"),
        ("GptOss", EXPERTS, lambda model: model(TOKENS), "sinks"),
    ],
)
def test_what_no_rung_computes_is_refused_by_name(
    kind: str, changed: dict[str, Any], use: Callable[[Any], object], message: str
) -> None:
    with torch.no_grad(), pytest.raises(UnsupportedProblem, match=message):
        use(made(kind, "ladder", **changed))


#: Models whose attention is their own: Falcon and GPTNeo look its name up, the others build on its mask.
OWN_ATTENTION: dict[str, dict[str, Any]] = {
    "Bloom": {},
    "Falcon": {},
    "GPTNeo": {"attention_types": [[["global"], 1]]},
    "GPTNeoXJapanese": {},
    "MegatronBert": {},
    "XGLM": {"d_model": 64, "num_layers": 2, "attention_heads": 2},
}


@pytest.mark.parametrize(("kind", "changed"), OWN_ATTENTION.items())
def test_a_model_with_its_own_attention_is_refused_when_it_is_made(
    kind: str, changed: dict[str, Any]
) -> None:
    config = getattr(transformers, f"{kind}Config")(**{"hidden_size": 64, "num_hidden_layers": 1, **changed})
    with pytest.raises(UnsupportedProblem, match=rf"{kind}\w+ does not compute its attention through"):
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="ladder")


def test_a_model_with_its_own_attention_is_refused_when_it_gets_the_name_later() -> None:
    model = transformers.BloomForCausalLM(transformers.BloomConfig(**{**SIZES, "n_layer": 1, "n_head": 2}))
    model.config._attn_implementation = "ladder"
    with torch.no_grad(), pytest.raises(UnsupportedProblem, match="Bloom"):
        model(TOKENS)


def test_a_stage_can_be_chosen() -> None:
    ladder.register_attention("ladder-v2", stage="v2")
    with torch.no_grad(), pytest.raises(UnsupportedProblem, match=f"{named('v2')} takes f16"):
        made("Llama", "ladder-v2")(TOKENS)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LadderError, match="transformers is not installed") as caught:
        ladder.register_attention()
    assert "flash-ladder[transformers]" in caught.value.hint
