"""``ladder.decode_attention``: results against float64, caches as they lie, one clear error for bad input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ladder
from ladder.call import decoding
from ladder.call.kept import Kept
from ladder.errors import InvalidProblem, UnsupportedProblem

CACHES = ("k_cache", "v_cache")


def inputs(
    batch: int = 2, heads: int = 4, kv_heads: int = 2, q_len: int = 1, keys: int = 96, d: int = 64
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(torch.float16)

    return {
        "query": draw(batch, heads, q_len, d),
        "k_cache": draw(batch, kv_heads, keys, d),
        "v_cache": draw(batch, kv_heads, keys, d),
        "seqused_k": torch.tensor([keys, 37][:batch], dtype=torch.int32),
    }


def in_e4m3(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The caches in 8 bits, with a factor per kv head."""
    factors = {"k": torch.tensor([0.25, 2.0]), "v": torch.tensor([3.0, 0.1])}
    caches = {
        name: (given[name].float() / factors[name[0]][:, None, None]).to(torch.float8_e4m3fn)
        for name in CACHES
    }
    return {**given, **caches, "k_descale": factors["k"], "v_descale": factors["v"]}


def exact(query: Tensor, k_cache: Tensor, v_cache: Tensor, seqused_k: Tensor) -> Tensor:
    """o in float64, causal from the lower right."""
    o = torch.zeros(query.shape, dtype=torch.float64)
    group = query.shape[1] // k_cache.shape[1]
    for b, length in enumerate(seqused_k.tolist()):
        k, v = (x[b, :, :length].double().repeat_interleave(group, 0) for x in (k_cache, v_cache))
        s = query[b].double() @ k.mT / query.shape[3] ** 0.5
        i, j = torch.arange(query.shape[2])[:, None], torch.arange(length)
        s.masked_fill_(j > i + length - query.shape[2], -torch.inf)
        o[b] = torch.softmax(s, -1) @ v
    return o


def in_pages(given: dict[str, Tensor], size: int) -> dict[str, Tensor]:
    """The same in pages of a cache in which they lie in reverse order."""
    batch, _, keys, _ = given["k_cache"].shape
    count = keys // size
    table = torch.arange(batch * count, dtype=torch.int32).flip(0).reshape(batch, count)

    def pages(x: Tensor) -> Tensor:
        found = torch.empty(batch * count, x.shape[1], size, x.shape[3], dtype=x.dtype)
        for b in range(batch):
            for i in range(count):
                found[table[b, i]] = x[b, :, i * size : (i + 1) * size]
        return found

    caches = {name: pages(given[name]) for name in ("k_cache", "v_cache")}
    return {**given, **caches, "block_table": table}


def side_by_side(x: Tensor) -> Tensor:
    """The same values as a cache whose heads of a key lie side by side."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("q_len", [1, 3])
def test_it_computes_attention_over_a_cache(q_len: int) -> None:
    given = inputs(q_len=q_len)
    wanted = exact(**given)
    o, lse = ladder.decode_attention(**given, is_causal=True)
    assert o.dtype == torch.float16 and lse.shape == (2, 4, q_len) and lse.dtype == torch.float32
    assert float((o.double() - wanted).abs().max()) < 2e-3
    split, _ = ladder.decode_attention(**given, is_causal=True, num_splits=3)
    assert float((split.double() - wanted).abs().max()) < 2e-3


def test_caches_are_taken_as_they_lie() -> None:
    """Dense, in pages, and with a key's heads side by side: the same bits."""
    given = inputs()
    paged = in_pages(given, 32)
    o, lse = ladder.decode_attention(**given)
    for same in (given, paged):
        lying = {**same, **{name: side_by_side(same[name]) for name in ("k_cache", "v_cache")}}
        for one in (same, lying):
            o_other, lse_other = ladder.decode_attention(**one)
            assert torch.equal(o, o_other) and torch.equal(lse, lse_other)


def values_of(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with the caches' values in float64."""
    values = {
        name: given[name].float().double() * given[f"{name[0]}_descale"][:, None, None] for name in CACHES
    }
    return {**values, **{name: given[name] for name in ("query", "seqused_k")}}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("q_len", [1, 3])
def test_caches_of_8_bits(dtype: torch.dtype, q_len: int) -> None:
    given = in_e4m3(inputs(q_len=q_len))
    given["query"] = given["query"].to(dtype)
    o, lse = ladder.decode_attention(**given, is_causal=True)
    off = float((o.double() - exact(**values_of(given))).abs().max())
    assert o.dtype == dtype and off < (2e-3 if dtype == torch.float16 else 2e-2)
    lying = {name: side_by_side(given[name]) for name in CACHES}
    for same in ({**given, **lying}, {**given, **in_pages_of_8_bits(given)}):
        o_other, lse_other = ladder.decode_attention(**same, is_causal=True)
        assert torch.equal(o, o_other) and torch.equal(lse, lse_other)


def in_pages_of_8_bits(given: dict[str, Tensor]) -> dict[str, Tensor]:
    bits = {name: given[name].view(torch.uint8) for name in CACHES}
    paged = in_pages({**given, **bits}, 16)
    return {**paged, **{name: paged[name].view(torch.float8_e4m3fn) for name in CACHES}}


def test_new_keys_of_8_bits() -> None:
    given = in_e4m3(inputs())
    whole, _ = ladder.decode_attention(**given)
    new = {}
    for name in CACHES:
        cache = given[name].view(torch.uint8)
        new[f"{name[0]}_new"] = torch.stack([cache[0, :, 95:], cache[1, :, 36:37]]).view(torch.float8_e4m3fn)
        cache[0, :, 95], cache[1, :, 36] = 0x7F, 0x7F  # NaN
    assert torch.equal(ladder.decode_attention(**given, **new)[0], whole)


def test_queries_may_be_larger_than_f16_holds() -> None:
    """In bf16, while a row's logits stay the same."""
    given = in_e4m3(inputs())
    given["query"] = given["query"].bfloat16()
    o, _ = ladder.decode_attention(**given, scale=0.125)
    for power in (100, -100):
        other = {**given, "query": given["query"] * 2.0**power}
        assert torch.equal(ladder.decode_attention(**other, scale=0.125 * 2.0**-power)[0], o)


def test_no_rung_takes_variants_of_caches_of_8_bits() -> None:
    with pytest.raises(UnsupportedProblem, match="takes no softcap"):
        ladder.decode_attention(**in_e4m3(inputs()), softcap=1.0)


def test_no_keys() -> None:
    given = inputs()
    given["seqused_k"] = torch.tensor([0, 5], dtype=torch.int32)
    o, lse = ladder.decode_attention(**given)
    assert not o[0].any() and bool((lse[0] == -torch.inf).all())
    assert bool(o[1].any()) and bool(lse[1].isfinite().all())


def test_one_token_after_the_other() -> None:
    """A loop as a model has it: each token's key and value are written in place, then it is decoded. Its
    outputs are the rows of causal attention over the whole text.
    """
    given = inputs(batch=1, keys=48)
    text = inputs(batch=1, keys=48, q_len=48 // 8)
    queries, k, v = text["query"], given["k_cache"], given["v_cache"]
    k_cache, v_cache = torch.full_like(k, torch.nan), torch.full_like(v, torch.nan)
    length = torch.zeros(1, dtype=torch.int32)
    for token in range(48):
        k_cache[:, :, token], v_cache[:, :, token] = k[:, :, token], v[:, :, token]
        length += 1
        query = queries[:, :, token % 6 : token % 6 + 1].contiguous()
        o, _ = ladder.decode_attention(query, k_cache, v_cache, length)
        wanted = exact(query, k, v, length)
        assert float((o.double() - wanted).abs().max()) < 2e-3, token


def wrong(**changes: Any) -> dict[str, Any]:
    return {**inputs(), **changes}


def lengths(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def table(**pages: int) -> dict[str, Any]:
    """A table of 3 pages of 32 keys each, in which some entries are others."""
    given = in_pages(inputs(), 32)
    for place, page in pages.items():
        b, i = (int(digit) for digit in place[1:])
        given["block_table"][b, i] = page
    return given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (wrong(seqused_k=lengths(97, 1)), "sequence 0 has 97 keys; it may have 0 to 96"),
        (wrong(seqused_k=lengths(1, -1)), "sequence 1 has -1 keys; it may have 0 to 96"),
        (wrong(seqused_k=lengths(1)), r"seqused_k is \(1,\); it must be \(2,\)"),
        (wrong(seqused_k=torch.tensor([1, 2])), "seqused_k is torch.int64; it must be torch.int32"),
        (wrong(query=inputs(heads=3)["query"]), "H = 3 is not a multiple of Hkv = 2"),
        (wrong(query=inputs(batch=1)["query"], seqused_k=lengths(1)), "k_cache has batch 2 and query 1"),
        (wrong(v_cache=inputs(keys=95)["v_cache"]), "k_cache is .* and v_cache .* the same shape"),
        (wrong(is_causal="yes"), "is_causal is .yes."),
        (wrong(num_splits=-1), "num_splits is -1"),
        (wrong(window_size=(-2, 0)), r"window is \(-2, 0\)"),
        (wrong(softcap=-1.0), "softcap is -1.0; it must be positive"),
        (wrong(options=[1]), r"options are \[1\]; they must be a mapping"),
        (wrong(sinks=torch.zeros(3)), r"sinks are \(3,\) and query has 4 heads"),
        (wrong(sinks=torch.zeros(4).half()), "sinks are torch.float16"),
        (
            wrong(k_descale=torch.ones(2)),
            "k_descale is of caches in torch.float8_e4m3fn, and .* torch.float16",
        ),
        ({**in_e4m3(inputs()), "v_descale": None}, r"v_descale is None; .* need \(2,\), one per kv head"),
        ({**in_e4m3(inputs()), "k_descale": torch.ones(4)}, r"k_descale is \(4,\), .* it must be \(2,\)"),
        ({**in_e4m3(inputs()), "k_descale": torch.ones(2).half()}, "k_descale is .*float16 .* torch.float32"),
        ({**in_e4m3(inputs()), "v_cache": inputs()["v_cache"]}, "v_cache is torch.float16; .* one dtype"),
        (
            {**in_e4m3(inputs()), "k_descale": torch.tensor([torch.nan, 1.0])},
            r"k_descale\[0\] is nan; .* finite",
        ),
        (
            {**in_e4m3(inputs()), "v_descale": torch.tensor([1.0, torch.inf])},
            r"v_descale\[1\] is inf; .* finite",
        ),
        (wrong(num_splits=10**6), "num_splits is 1000000; it must be a whole number up to 1,024"),
        (table(b02=6), r"block_table\[0, 2\] is 6; sequence 0 has 96 keys in 3 pages of 32, .* 0 to 5"),
        (table(b10=-1), r"block_table\[1, 0\] is -1"),
        ({**table(), "seqused_k": lengths(97, 1)}, "sequence 0 has 97 keys; it may have 0 to 96"),
        ({**table(), "block_table": torch.zeros(1, 3, dtype=torch.int32)}, r"block_table is \(1, 3\)"),
        (wrong(k_cache=inputs(d=128)["k_cache"][..., ::2]), "k_cache has the strides .* contiguous"),
        (wrong(v_cache=torch._neg_view(inputs()["v_cache"])), "v_cache has torch's negative bit set"),
    ],
)
def test_bad_input_has_one_clear_error_before_a_launch(
    given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*_: Any) -> None:
        raise AssertionError("a rung was prepared")

    monkeypatch.setattr(decoding, "_runs", Kept(1))
    monkeypatch.setattr(decoding, "prepare", launch)
    with pytest.raises(InvalidProblem, match=message):
        ladder.decode_attention(**given)


def in_tokens(d: int) -> dict[str, Any]:
    """Caches (B, M, Hkv, d), transposed."""
    given = inputs(d=d)
    caches = {
        name: given[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("k_cache", "v_cache")
    }
    return {**given, **caches}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (wrong(query=inputs(q_len=8)["query"].repeat(1, 1, 2, 1)), "N is 16; .* at most 8 queries"),
        (in_pages(inputs(), 24), "page_size is 24; rungs take multiples of 16"),
        ({**inputs(d=192), "v_cache": inputs(d=128)["v_cache"]}, "v_cache 128: no rung computes this here"),
        (inputs(d=192), "no stage takes d = 192; stages take 64, 128, 256"),
        (in_tokens(72), r"no stage takes d = 72.*\n.*zeros to d = 128"),
    ],
)
def test_limits_of_the_rungs_name_what_works(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedProblem, match=message) as caught:
        ladder.decode_attention(**given)
    assert len(str(caught.value).splitlines()) <= 4


@pytest.mark.parametrize("window", [(5, -1), (-1, 3), (7, 2)])
def test_keys_after_the_querys_own_are_no_window(window: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedProblem, match="no decoding rung has a window of keys after"):
        ladder.decode_attention(**inputs(), window_size=window)


def test_the_variants_are_those_of_attention() -> None:
    """A window, a softcap and sinks; (-1, 0) is causal alone."""
    given = inputs(batch=1, q_len=3)
    causal, _ = ladder.decode_attention(**given, is_causal=True)
    assert torch.equal(ladder.decode_attention(**given, window_size=(-1, 0))[0], causal)
    sinks = torch.tensor([0.5, -1.0, 3.0, 0.0])
    o, lse = ladder.decode_attention(**given, window_size=(20, 0), softcap=2.0, sinks=sinks)
    k, v = (given[name].double().repeat_interleave(2, 1) for name in ("k_cache", "v_cache"))
    s = 2 * torch.tanh(given["query"].double() @ k.mT / 8 / 2)
    i, j = torch.arange(3)[:, None] + 96 - 3, torch.arange(96)
    s.masked_fill_((j > i) | (j < i - 20), -torch.inf)
    exact_lse = torch.cat((s, sinks.double()[None, :, None, None].expand(1, 4, 3, 1)), -1).logsumexp(-1)
    torch.testing.assert_close(lse.double(), exact_lse, atol=2e-3, rtol=0)
    torch.testing.assert_close(o.double(), torch.exp(s - exact_lse[..., None]) @ v, atol=4e-3, rtol=0)


@pytest.mark.parametrize("page_size", [0, 32])
def test_new_keys_are_stored_first(page_size: int) -> None:
    """And nothing else of the caches changes."""
    given = in_pages(inputs(q_len=3), 32) if page_size else inputs(q_len=3)
    whole, _ = ladder.decode_attention(**given, is_causal=True)
    missing = {name: x.clone() for name, x in given.items()}
    dense = inputs(q_len=3)
    new = {}
    for name in ("k", "v"):
        cache = dense[f"{name}_cache"]
        new[f"{name}_new"] = torch.stack(
            [cache[b, :, n - 3 : n] for b, n in enumerate(given["seqused_k"].tolist())]
        )
        for b, n in enumerate(given["seqused_k"].tolist()):
            for key in range(n - 3, n):
                page, row = (int(given["block_table"][b, key // 32]), key % 32) if page_size else (b, key)
                missing[f"{name}_cache"][page, :, row] = torch.nan
    o, _ = ladder.decode_attention(**missing, **new, is_causal=True)
    assert torch.equal(o, whole)
    assert all(torch.equal(missing[name], given[name]) for name in given)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"k_new": torch.zeros(2, 2, 1, 64).half()}, "pass both or none"),
        ({"k_new": [0.0], "v_new": [0.0]}, "k_new is a list"),
        ({name: torch.zeros(2, 4, 1, 64).half() for name in ("k_new", "v_new")}, r"k_new is \(2, 4, 1, 64\)"),
        ({name: torch.zeros(2, 2, 1, 64) for name in ("k_new", "v_new")}, "k_new is .* torch.float32"),
    ],
)
def test_new_keys_that_do_not_fit(new: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        ladder.decode_attention(**inputs(), **new)


def test_a_length_counts_the_new_keys() -> None:
    given = {**inputs(), "seqused_k": lengths(96, 0)}
    new = torch.zeros(2, 2, 1, 64).half()
    with pytest.raises(InvalidProblem, match="a sequence of 0 keys; with k_new it counts the 1 new ones"):
        ladder.decode_attention(**given, k_new=new, v_new=new)


def test_pages_that_no_sequence_uses_may_be_anything() -> None:
    """Sequence 1 has 37 keys, in two pages."""
    o, _ = ladder.decode_attention(**table(b12=99))
    assert torch.equal(o, ladder.decode_attention(**table())[0])


def test_factors_that_change_are_checked_again() -> None:
    """A sequence without keys has o = 0, which is not multiplied by infinity."""
    given = {**in_e4m3(inputs()), "seqused_k": lengths(96, 0)}
    assert not ladder.decode_attention(**given)[0][1].any()
    given["v_descale"][1] = torch.inf
    with pytest.raises(InvalidProblem, match=r"v_descale\[1\] is inf; a kv head's factor must be finite"):
        ladder.decode_attention(**given)


def test_lengths_that_change_are_checked_again() -> None:
    given = inputs()
    ladder.decode_attention(**given)
    given["seqused_k"] += 1
    with pytest.raises(InvalidProblem, match="sequence 0 has 97 keys"):
        ladder.decode_attention(**given)


def test_there_are_no_gradients() -> None:
    given = inputs()
    given["query"].requires_grad_()
    with pytest.raises(UnsupportedProblem, match="decoding has none"):
        ladder.decode_attention(**given)
    with torch.no_grad():
        ladder.decode_attention(**given)


@pytest.mark.parametrize("name", ["k_new", "sinks"])
def test_no_tensor_may_require_a_gradient(name: str) -> None:
    """A cache into which such keys are stored would require one, too."""
    given = inputs()
    given |= {"k_new": torch.zeros(2, 2, 1, 64).half(), "v_new": torch.zeros(2, 2, 1, 64).half()}
    given["sinks"] = torch.zeros(4)
    given[name].requires_grad_()
    with pytest.raises(UnsupportedProblem, match="decoding has none"):
        ladder.decode_attention(**given)
    assert not given["k_cache"].requires_grad


def test_sinks_may_have_strides() -> None:
    wide = torch.arange(8.0)
    _, lse = ladder.decode_attention(**inputs(), sinks=wide[::2])
    assert torch.equal(lse, ladder.decode_attention(**inputs(), sinks=wide[::2].contiguous())[1])


COMPILERS = pytest.mark.parametrize("compiler", ["eager", "aot_eager"])


@COMPILERS
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_as_one_graph(compiler: str) -> None:
    def model(query: Tensor, **others: Tensor) -> Tensor:
        o, lse = ladder.decode_attention(query * 2, **others, softcap=9.0)
        return o.float() + torch.exp(lse)[..., None]

    compiled = torch.compile(model, backend=compiler, fullgraph=True)
    for given in (inputs(), in_pages(inputs(keys=128), 32)):  # recompiled
        assert torch.equal(compiled(**given), model(**given))


@COMPILERS
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_with_new_keys(compiler: str) -> None:
    def step(query: Tensor, k_cache: Tensor, v_cache: Tensor, seqused_k: Tensor) -> Tensor:
        new = query[:, :2]
        o, _ = ladder.decode_attention(query, k_cache, v_cache, seqused_k + 1, k_new=new * 2, v_new=new)
        return o

    given = {**inputs(), "seqused_k": lengths(60, 37)}
    eager, compiled = ({name: x.clone() for name, x in given.items()} for _ in range(2))
    expected = step(**eager)
    assert torch.equal(torch.compile(step, backend=compiler, fullgraph=True)(**compiled), expected)
    for name in ("k_cache", "v_cache"):
        assert torch.equal(compiled[name], eager[name]) and not torch.equal(eager[name], given[name])


def test_what_torch_asks_of_an_operator() -> None:
    tensors = (*inputs().values(), None, None, None, None)
    new = torch.ones(2, 2, 1, 64).half()
    choices = (False, None, 0, (-1, -1), None, True, "auto", "", "")
    asked = ("test_schema", "test_faketensor")
    torch.library.opcheck(decoding.decoding_operator, (*tensors, *choices), test_utils=asked)
    torch.library.opcheck(decoding.appending_operator, (*tensors, new, new, *choices), test_utils=asked)
