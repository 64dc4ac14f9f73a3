"""ladder.hstu_attention and ladder.HSTULayer against plain torch in float64, and the inputs they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from rungs import named
from torch import Tensor

import ladder
from ladder.call import hstu, layers
from ladder.call.runs import Run, highest
from ladder.errors import InvalidProblem, LadderError, UnsupportedProblem
from ladder.operations import HstuBackwardProblem

HEADS, D = 2, 32
#: The rungs that take a bias. The matrix of all stages tests the others.
RUNGS = {"stage": "h3", "backward": "h3c"}


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sequences(cu_seqlens: Tensor) -> Iterator[slice]:
    for first, end in pairwise(cu_seqlens.tolist()):
        yield slice(first, end)


def plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    rab: Tensor | None = None,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    target_group_size: int = 1,
    window: tuple[int, int] = (-1, 0),
    intervals: Tensor | None = None,
    alpha: float = D**-0.5,
) -> Tensor:
    """Computes section 3.2 of the paper sequence by sequence, in the dtype of the tensors."""
    outputs = []
    of_keys = cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k
    longest = int(cu_seqlens_q.diff().max())
    for b, (queries, keys) in enumerate(zip(sequences(cu_seqlens_q), sequences(of_keys), strict=True)):
        n, m = queries.stop - queries.start, keys.stop - keys.start
        seen = ladder.hstu_mask(
            n,
            m,
            0 if num_contexts is None else int(num_contexts[b]),
            0 if num_targets is None else int(num_targets[b]),
            target_group_size,
            window,
            None if intervals is None else intervals[:, queries],
        )
        x = q[queries].transpose(0, 1) @ k[keys].permute(1, 2, 0)
        if rab is not None:
            x = x + rab[b, :, m - n : m, :m]
        outputs.append(((F.silu(alpha * x) * seen) @ v[keys].transpose(0, 1)).transpose(0, 1) / longest)
    return torch.cat(outputs)


def require_close(ours: Tensor, exact: Tensor) -> None:
    """Requires errors within a few fp16 roundings of the largest element."""
    assert (ours.double() - exact).abs().max() <= 4 * 2.0**-11 * exact.abs().max()


MASKS = {
    "contexts and targets": {
        "num_contexts": ints(2, 0, 1),
        "num_targets": ints(7, 0, 20),
        "target_group_size": 3,
    },
    "more keys than queries": {"cu_seqlens_k": ints(0, 40, 41, 112), "window": (20, 3)},
    "intervals": {"intervals": torch.stack([draw(70, seed=b).mul(9).abs().int() for b in range(3)])},
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_outputs_and_gradients(mask: dict[str, object]) -> None:
    """With one bias per head; q, k and v are slices of one tensor if they have the same tokens."""
    cu_seqlens = ints(0, 33, 33, 70)
    if "cu_seqlens_k" in mask:
        leaves = [draw(tokens, HEADS, D, seed=tokens).half() for tokens in (70, 112, 112)]
        longest, split = 71, lambda q, k, v: (q, k, v)
    else:
        leaves = [draw(70, 3, HEADS, D, seed=1).half()]
        longest, split = 37, lambda qkv: qkv.unbind(1)
    leaves.append(draw(3, HEADS, longest, longest, seed=2).half())
    exact = [leaf.double().requires_grad_() for leaf in leaves]
    ours = [leaf.requires_grad_() for leaf in leaves]
    d_o = draw(70, HEADS, D, seed=3)

    def outputs(attention: Callable[..., Tensor], leaves: list[Tensor], **choices: object) -> Tensor:
        *tokens, rab = leaves
        return attention(*split(*tokens), cu_seqlens, rab=rab, **mask, **choices)

    o, expected = outputs(ladder.hstu_attention, ours, **RUNGS), outputs(plain, exact)
    require_close(o, expected)
    found = torch.autograd.grad(o, ours, d_o.half())
    for mine, other in zip(found, torch.autograd.grad(expected, exact, d_o.half().double()), strict=True):
        assert mine.dtype == torch.float16 and mine.shape == other.shape
        require_close(mine, other)


@pytest.mark.parametrize("far", [2**31 - 1, 2**40])
def test_a_window_wider_than_all_sequences_hides_nothing(far: int) -> None:
    tensors = (*draw(3, 20, HEADS, D, seed=1).half(), ints(0, 20))
    wide, all_seen = (ladder.hstu_attention(*tensors, window=(x, x), stage="h2") for x in (far, -1))
    assert torch.equal(wide, all_seen)


def test_one_bias_for_all_heads_sums_their_gradients() -> None:
    cu_seqlens = ints(0, 20)
    q, k, v = draw(3, 20, HEADS, D, seed=1).half()
    rab = draw(1, 1, 20, 20, seed=2).half().requires_grad_()
    exact = rab.detach().double().requires_grad_()
    ladder.hstu_attention(q, k, v, cu_seqlens, rab=rab, **RUNGS).sum().backward()
    plain(q.double(), k.double(), v.double(), cu_seqlens, rab=exact).sum().backward()
    require_close(rab.grad, exact.grad)


def test_the_gradient_of_a_constant_bias_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[set[str]] = []

    def recorded(run: Run, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        computed.append({output.name for output in run.outputs})
        return call_run(run, *inputs)

    call_run = Run.__call__
    monkeypatch.setattr(Run, "__call__", recorded)
    tokens = [x.requires_grad_() for x in draw(3, 20, HEADS, D, seed=1).half()]
    rab = draw(1, HEADS, 20, 20, seed=2).half()
    gradients = []
    for bias in (rab, rab.clone().requires_grad_()):
        o = ladder.hstu_attention(*tokens, ints(0, 20), rab=bias, **RUNGS)
        gradients.append(torch.autograd.grad(o.sum(), tokens))
    assert computed == [{"o"}, {"dq", "dk", "dv"}, {"o"}, {"dq", "dk", "dv", "d_rab"}]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.full
def test_the_same_bits_in_every_run() -> None:
    """Three heads add to one bias, several tiles of keys to dQ."""
    q, k, v = draw(3, 300, 3, D, seed=1).half()
    rab = draw(1, 1, 300, 300, seed=2).half()
    runs = []
    for _ in range(4):
        leaves = [x.clone().requires_grad_() for x in (q, k, v, rab)]
        *tokens, bias = leaves
        o = ladder.hstu_attention(*tokens, ints(0, 300), rab=bias, deterministic=True, stage="h3")
        runs.append(torch.autograd.grad(o.sum(), leaves))
    assert all(torch.equal(a, b) for other in runs[1:] for a, b in zip(runs[0], other, strict=True))


def test_a_rung_that_is_not_deterministic_is_refused() -> None:
    tokens = [x.requires_grad_() for x in draw(3, 20, HEADS, D, seed=1).half()]
    rungs = {"stage": "h2", "backward": "h3b"}
    with pytest.raises(UnsupportedProblem, match=f"{named('h3b')} is not deterministic"):
        ladder.hstu_attention(*tokens, ints(0, 20), deterministic=True, **rungs)
    with pytest.raises(LadderError, match="there is no stage 'h99'"):
        ladder.hstu_attention(*tokens, ints(0, 20), stage="h2", backward="h99")


def test_auto_leaves_out_rungs_that_add_determinism() -> None:
    problem = HstuBackwardProblem(HEADS, D, (20,), dtype="f16", bias_heads=1)
    assert highest(problem).name == named("h3e")
    assert highest(problem, deterministic=True).name == named("h3g")


def test_the_last_queries_alone_are_the_last_rows_of_all() -> None:
    q, k, v = draw(3, 90, HEADS, D, seed=1).half()
    choices = {"scaling_seqlen": 64, "num_targets": ints(4, 9), "stage": "h2"}
    whole = ladder.hstu_attention(q, k, v, ints(0, 40, 90), **choices)
    last = torch.cat([q[30:40], q[73:90]])
    part = ladder.hstu_attention(last, k, v, ints(0, 10, 27), ints(0, 40, 90), **choices)
    assert torch.equal(part, torch.cat([whole[30:40], whole[73:90]]))


def paged(k: Tensor, v: Tensor, history: list[slice]) -> ladder.HstuPages:
    """Puts the histories' tokens into pages of 32, from the last to the first."""
    rows = [torch.stack([k[one], v[one]]).split(32, 1) for one in history]
    counts = [len(pages) for pages in rows]
    cache = [F.pad(page, (0, 0, 0, 0, 0, 32 - page.shape[1])) for pages in rows for page in pages]
    return ladder.HstuPages(
        torch.stack(cache[::-1]),
        ints(0, *torch.tensor(counts).cumsum(0).tolist()),
        ints(*reversed(range(len(cache)))),
        ints(*(pages[-1].shape[1] for pages in rows)),
    )


def test_keys_in_pages_give_the_same_rows() -> None:
    """Sequences of 40 and 50 tokens, 4 and 9 of them targets; the queries are the last 10 and 17."""
    q, k, v = draw(3, 90, HEADS, D, seed=1).half()
    choices = {"scaling_seqlen": 64, "num_targets": ints(4, 9)}
    whole = ladder.hstu_attention(q, k, v, ints(0, 40, 90), stage="h2", **choices)
    tokens = torch.cat([torch.arange(30, 40), torch.arange(73, 90)])
    pages = paged(k, v, [slice(0, 36), slice(40, 81)])
    found = ladder.hstu_attention(q[tokens], k[tokens], v[tokens], ints(0, 10, 27), pages=pages, **choices)
    require_close(found, whole[tokens].double())


def call(**changed: object) -> Tensor:
    """Calls it on two sequences of 5 and 11 tokens, with changed arguments."""
    tokens = dict(zip(("query", "key", "value"), torch.zeros(3, 16, HEADS, D).half(), strict=True))
    return ladder.hstu_attention(**{**tokens, "cu_seqlens_q": ints(0, 5, 16), **changed})


def pages(**changed: object) -> ladder.HstuPages:
    whole = ladder.HstuPages(
        torch.zeros(3, 2, 32, HEADS, D).half(), ints(0, 1, 3), ints(2, 0, 1), ints(5, 32)
    )
    return whole._replace(**changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cu_seqlens_q": ints(1, 5, 16)}, "cu_seqlens_q begins with 1"),
        ({"cu_seqlens_q": ints(0, 12, 9)}, "cu_seqlens_q decreases from 12 to 9 at sequence 1"),
        ({"cu_seqlens_q": ints(0, 5, 17)}, "cu_seqlens_q ends with 17; the tokens of query are 16"),
        ({"cu_seqlens_q": ints(0, 5, 16).long()}, r"cu_seqlens_q is torch\.int64; it must be torch\.int32"),
        ({"cu_seqlens_k": ints(0, 4, 16)}, "5 queries and 4 keys"),
        ({"num_contexts": ints(3, 3), "num_targets": ints(3, 3)}, "3 contexts and 3 targets do not fit"),
        ({"num_targets": ints(1)}, r"num_targets is \(1,\); it must be \(2,\)"),
        ({"num_targets": ints(1, 1), "window": (4, 0)}, r"window \(4, 0\) with contexts or targets"),
        ({"target_group_size": 0}, "target_group_size is 0"),
        ({"rab": torch.zeros(2, 1, 16, 16).half()}, r"rab is \(2, 1, 16, 16\); it must be \(2, 1, 11, 11\)"),
        ({"rab": torch.zeros(2, 1, 11, 11)}, r"rab is torch\.float32 and query torch\.float16"),
        ({"rab": torch.zeros(2, 3, 11, 11).half()}, "bias_heads is 3; it is 0, 1 or the heads, 2"),
        ({"intervals": torch.zeros(2, 16).int()}, "an odd number of bounds, 16 tokens"),
        ({"query": torch.zeros(16, D).half()}, "query has 2 dimensions; it must have 3"),
        ({"key": torch.zeros(16, HEADS, D)}, r"key is torch\.float32 and query torch\.float16"),
        ({"value": torch.zeros(16, HEADS, 64).half()}, r"value has \(2, 64\) heads and head_dim"),
        ({"query": torch.zeros(HEADS, 16, D).half().transpose(0, 1)}, "query has the strides"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"options": [1]}, r"options are \[1\]; they must be a mapping"),
        ({"pages": pages(page_ids=ints(2, 0, 3))}, r"page_ids\[2\] is 3; the cache has the pages 0 to 2"),
        ({"pages": pages(last_page_lens=ints(0, 32))}, r"last_page_lens\[0\] is 0"),
        ({"pages": pages(last_page_lens=ints(5, 33))}, r"last_page_lens\[1\] is 33"),
        (
            {"pages": pages(page_offsets=ints(0, 1, 2))},
            "page_offsets ends with 2; .* page_ids are 3",
        ),
        ({"pages": pages(), "cu_seqlens_k": ints(0, 5, 16)}, "both say how many keys"),
    ],
)
def test_what_is_no_problem(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        call(**changed)


def test_what_no_rung_differentiates() -> None:
    leaf = torch.zeros(16, HEADS, D).half().requires_grad_()
    with pytest.raises(UnsupportedProblem, match="keys in pages have none"):
        call(query=leaf, pages=pages())
    wide = torch.zeros(3, 16, HEADS, 256).half().requires_grad_()
    with pytest.raises(UnsupportedProblem, match="no stage takes d = 256; stages take 32, 64, 128"):
        ladder.hstu_attention(*wide, ints(0, 16))


def test_a_second_gradient_is_refused_even_if_d_o_is_constant() -> None:
    tokens = [x.requires_grad_() for x in draw(3, 20, HEADS, D, seed=1).half()]
    o = ladder.hstu_attention(*tokens, ints(0, 20), stage="h2", backward="h3b")
    [d_q] = torch.autograd.grad(o.sum(), tokens[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (o.sum() + d_q.square().sum()).backward()


@pytest.mark.parametrize(("heads", "is_fused"), [(2, True), (3, False)])
def test_the_layer(heads: int, is_fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares outputs and all parameters' gradients with the formula in float64, sequence by sequence. Only
    rows of 64 columns go through ladder.norm_gate, those of 96 through torch.
    """
    shapes: list[torch.Size] = []

    def recorded(*tensors: Tensor) -> Tensor:
        shapes.append(tensors[0].shape)
        return ladder.norm_gate(*tensors)

    monkeypatch.setattr(layers, "norm_gate", recorded)
    torch.manual_seed(0)
    layer = ladder.HSTULayer(
        24,
        heads,
        D,
        bias_distance=8,
        target_group_size=2,
        dtype=torch.float16,
        attention=lambda *tensors, **choices: ladder.hstu_attention(*tensors, **choices, **RUNGS),
    )
    for parameter in (layer.bias.weight, layer.attention_norm.weight, layer.attention_norm.bias):
        torch.nn.init.normal_(parameter)
    marks = {"num_contexts": ints(1, 2), "num_targets": ints(4, 0)}
    x, cu_seqlens = draw(50, 24, seed=1), ints(0, 33, 50)
    found = layer(x, cu_seqlens, **marks)
    assert shapes == [(50, 64)] * is_fused
    expected = _layer_by_its_formula(layer, x.double(), cu_seqlens, **marks)
    assert (found - expected).abs().max() < 4e-3
    weights = draw(50, 24, seed=2)
    (found * weights).sum().backward()
    exact = torch.autograd.grad((expected * weights).sum(), list(layer.parameters()))
    for parameter, gradient in zip(layer.parameters(), exact, strict=True):
        assert (parameter.grad - gradient).abs().max() <= 4e-3 * gradient.abs().max()


def _layer_by_its_formula(layer: ladder.HSTULayer, x: Tensor, cu_seqlens: Tensor, **marks: Tensor) -> Tensor:
    named = {name: parameter.double() for name, parameter in layer.named_parameters()}
    normed = F.layer_norm(x, (24,), named["norm.weight"], named["norm.bias"])
    parts = F.silu(normed @ named["project.weight"].T + named["project.bias"])
    width = layer.heads * D
    u, v, q, k = parts.split(width, dim=1)
    position = torch.arange(33)
    rab = named["bias.weight"][:, (position[:, None] - position).clamp(-8, 8) + 8].expand(2, 1, 33, 33)
    heads = (part.reshape(50, layer.heads, D) for part in (q, k, v))
    o = plain(*heads, cu_seqlens, rab=rab, target_group_size=2, **marks).reshape(50, width)
    weight, bias = named["attention_norm.weight"], named["attention_norm.bias"]
    gated = F.layer_norm(o, (width,), weight, bias, 1e-6) * u
    return x + gated @ named["output.weight"].T + named["output.bias"]


def test_sizes_that_make_no_layer() -> None:
    with pytest.raises(InvalidProblem, match="bias_heads is 3; it must be 1 or the heads, 2"):
        ladder.HSTULayer(24, 2, 32, bias_distance=4, bias_heads=3)
    with pytest.raises(InvalidProblem, match="heads 0"):
        ladder.HSTULayer(24, 0, 32)


def test_saved_tensors_may_come_back_with_other_strides() -> None:
    """As from the host's memory, where a slice becomes contiguous."""
    found = []
    offsets, rab = ints(0, 20), draw(1, 1, 20, 20, seed=2).half()
    for saved in (torch.Tensor.contiguous, torch.Tensor.detach):
        leaf = draw(20, 3, HEADS, D, seed=1).half().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda x: x):
            o = ladder.hstu_attention(*leaf.unbind(1), offsets, rab=rab, **RUNGS)
        found.append(torch.autograd.grad(o.sum(), leaf)[0])
    a, b = found
    assert (a - b).abs().max() <= 2**-8 * b.abs().max()


def test_offsets_that_change_before_the_backward_pass_are_an_error() -> None:
    offsets = ints(0, 10, 20)
    q, k, v = (x.requires_grad_() for x in draw(3, 20, HEADS, D, seed=1).half())
    o = ladder.hstu_attention(q, k, v, offsets, rab=draw(2, 1, 10, 10, seed=2).half(), **RUNGS)
    offsets[1] = 15
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def bias_and_tokens() -> tuple[list[Tensor], Tensor, Tensor]:
    """Leaves q, k, v and rab of sequences of 5 and 12 tokens, with their offsets and numbers of targets."""
    leaves = [draw(17, HEADS, D, seed=seed).half().requires_grad_() for seed in range(3)]
    return [*leaves, draw(2, 1, 12, 12, seed=3).half().requires_grad_()], ints(0, 5, 17), ints(1, 2)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_compiled_as_one_graph(compiler: str) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor, rab: Tensor, offsets: Tensor, targets: Tensor) -> Tensor:
        o = ladder.hstu_attention(
            q * 2,
            k,
            v,
            offsets,
            rab=rab,
            num_targets=targets,
            target_group_size=2,
            scaling_seqlen=12,
            **RUNGS,
        )
        return o.float().square().sum()

    found = []
    for call in (model, torch.compile(model, backend=compiler, fullgraph=True)):
        leaves, offsets, targets = bias_and_tokens()
        total = call(*leaves, offsets, targets)
        found.append([total, *torch.autograd.grad(total, leaves)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) and one.any()


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_without_a_gradient_of_the_bias() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor, rab: Tensor, offsets: Tensor) -> Tensor:
        return ladder.hstu_attention(q, k, v, offsets, rab=rab, **RUNGS).float().square().sum()

    found = []
    for call in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        leaves, offsets, _ = bias_and_tokens()
        found.append(torch.autograd.grad(call(*leaves[:3], leaves[3].detach(), offsets), leaves[:3]))
    assert all(map(torch.equal, *found))


def test_what_torch_asks_of_the_operators() -> None:
    (q, k, v, rab), offsets, _ = bias_and_tokens()
    tensors = (*(x.detach() for x in (q, k, v)), offsets, None, rab.detach(), *[None] * 7)
    mask, asked = (1, (-1, 0), None, None), ("test_schema", "test_faketensor")
    choices = (RUNGS["stage"], "", "", RUNGS["backward"], False)
    torch.library.opcheck(hstu.hstu_operator, (*tensors, *mask, *choices), test_utils=asked)
    for of_bias in (True, False):
        given = (torch.ones_like(tensors[0]), *tensors, *mask, RUNGS["backward"], "", False, of_bias)
        torch.library.opcheck(hstu.hstu_backward_operator, given, test_utils=asked)
