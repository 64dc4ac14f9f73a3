"""Windows, softcaps, sinks and sequences of different lengths: ladder.attention and ladder.varlen_attention
compute what float64 gives, and bad input has one clear error.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rungs import named
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

import ladder
from ladder.call import varlen
from ladder.errors import InvalidProblem, UnsupportedProblem

HEADS, KV_HEADS, N, M = 4, 2, 40, 70
ON = {"enable_gqa": True, "arch": "sm_90a"}


def tensors(d: int = 64, n: int = N, m: int = M) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, HEADS, n, d), (1, KV_HEADS, m, d), (1, KV_HEADS, m, d))
    q, k, v = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    return q, k, v


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """o and lse in float64, by the definition; a sink is a column of logits without a value."""
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q.double() @ k.mT / math.sqrt(q.shape[-1])
    s = s if softcap is None else softcap * torch.tanh(s / softcap)
    ahead = torch.arange(k.shape[2]) - (torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2])
    left, right = (10**9 if side < 0 else side for side in window)
    s = s.masked_fill((ahead < -left) | (ahead > right), -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double()[None, :, None, None].expand(*s.shape[:3], 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], 2)
    lse = s.logsumexp(-1)
    return (s - lse[..., None].nan_to_num(neginf=0.0)).exp() @ v, lse


@pytest.mark.parametrize(
    ("window", "softcap", "has_sinks", "d"),
    [
        ((12, 3), None, False, 64),
        ((0, 0), None, False, 64),
        ((12, 0), None, True, 64),
        ((-1, -1), None, True, 64),
        ((-1, 0), 5.0, False, 128),
    ],
)
def test_it_is_the_definition(
    window: tuple[int, int], softcap: float | None, has_sinks: bool, d: int
) -> None:
    q, k, v = tensors(d)
    sinks = torch.linspace(-1, 3, HEADS).bfloat16() if has_sinks else None
    o, lse = ladder.attention(q, k, v, window_size=window, softcap=softcap, sinks=sinks, **ON)
    exact, exact_lse = definition(q, k, v, window, softcap, sinks)
    assert torch.allclose(o.double(), exact, rtol=0, atol=0.02)
    assert torch.allclose(lse.double(), exact_lse, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("window", "softcap", "has_sinks", "d"),
    [((12, 3), None, False, 64), ((12, 0), None, True, 64), ((-1, -1), 2.0, False, 128)],
)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.usefixtures("both_functions")
def test_gradients_are_those_of_the_definition(
    window: tuple[int, int], softcap: float | None, has_sinks: bool, d: int, is_compiled: bool
) -> None:
    ours, theirs = [*tensors(d)], [x.double() for x in tensors(d)]
    if has_sinks:
        ours.append(torch.linspace(-1, 3, HEADS).bfloat16())
        theirs.append(ours[-1].double())
    for x in (*ours, *theirs):
        x.requires_grad_()

    def model(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return ladder.attention(q, k, v, window_size=window, softcap=softcap, sinks=sinks, **ON)

    torch._dynamo.reset()
    o, lse = (torch.compile(model, backend="aot_eager", fullgraph=True) if is_compiled else model)(*ours)
    exact, exact_lse = definition(*theirs[:3], window, softcap, *theirs[3:])
    d_o, d_lse = torch.randn(o.shape).bfloat16(), torch.randn(lse.shape)
    found = torch.autograd.grad((o, lse), ours, (d_o, d_lse))
    wanted = torch.autograd.grad((exact, exact_lse), theirs, (d_o.double(), d_lse.double()))
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == torch.bfloat16
        assert torch.allclose(mine.double(), other, rtol=0, atol=0.02 * float(other.abs().max()) + 1e-3)


def test_a_row_without_keys() -> None:
    q, k, v = tensors(n=90, m=30)
    o, lse = ladder.attention(q, k, v, window_size=(5, 0), **ON)
    assert not o[:, :, :60].any() and (lse[:, :, :60] == -math.inf).all() and lse[:, :, 60:].isfinite().all()


def test_one_key_is_not_all_before() -> None:
    q, k, v = tensors()
    one, causal = (ladder.attention(q, k, v, window_size=(left, 0), **ON)[0] for left in (0, -1))
    assert torch.equal(one, v[:, :, -N:].repeat_interleave(2, 1)) and not torch.equal(one, causal)


def test_no_limits_are_no_window() -> None:
    """A rung without windows takes them."""
    q, k, v = tensors()
    o, _ = ladder.attention(q, k, v, window_size=(-1, -1), stage="v12c", **ON)
    assert torch.equal(o, ladder.attention(q, k, v, stage="v12c", **ON)[0])


def test_compiled_it_is_the_same() -> None:
    q, k, v = tensors()
    sinks = torch.linspace(-1, 3, HEADS)

    def model(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
        return ladder.attention(q, k, v, window_size=(12, 0), sinks=sinks, **ON)[0]

    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v, sinks), model(q, k, v, sinks))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window_size": (-2, 0)}, r"window is \(-2, 0\); it must be \(left, right\)"),
        ({"window_size": (1, 2, 3)}, r"window is \(1, 2, 3\)"),
        ({"window_size": 5}, "window is 5"),
        ({"window_size": (5, 0), "is_causal": True}, "is_causal and a window are two masks"),
        ({"softcap": 0.0}, "softcap is 0.0; it must be positive"),
        ({"softcap": -3.0}, "softcap is -3.0; it must be positive"),
        ({"softcap": math.nan}, "softcap is nan; it must be finite"),
        ({"sinks": torch.zeros(3)}, r"sinks are \(3,\) and query has 4 heads"),
        ({"sinks": torch.zeros(HEADS, 1)}, r"sinks are \(4, 1\)"),
        ({"sinks": torch.zeros(HEADS, dtype=torch.int32)}, "sinks are torch.int32"),
        ({"sinks": torch.zeros(HEADS, device="meta")}, "sinks are on meta"),
        ({"sinks": [0.0] * HEADS}, "sinks are a list"),
    ],
)
def test_bad_input_has_one_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        ladder.attention(*tensors(), **given, **ON)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"softcap": 5.0, "sinks": torch.zeros(HEADS)}, r"x4\w+ takes no sinks"),
        ({"window_size": (5, 0), "stage": "v12c"}, f"{named('v12c')} takes no window"),
        ({"stage": "x2"}, f"{named('x2')} needs window, which the problem does not have"),
    ],
)
def test_a_rung_refuses_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedProblem, match=message):
        ladder.attention(*tensors(128), **given, **ON)


def sequences() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """Of 20, 0 and 70 queries and 33, 5 and 40 keys."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(t, h, 64, generator=generator).half() for t, h in ((90, HEADS), (78, 2), (78, 2)))
    return (q, k, v), *(torch.tensor(x, dtype=torch.int32) for x in ([0, 20, 20, 90], [0, 33, 38, 78]))  # type: ignore[return-value]


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (9, 2)])
def test_each_sequence_is_attention_of_its_own(window: tuple[int, int]) -> None:
    qkv, of_queries, of_keys = sequences()
    arguments = {"window_size": window, "return_aux": AuxRequest(lse=True)}
    o, lse = ladder.varlen_attention(*qkv, of_queries, of_keys, 70, 40, **arguments, **ON)
    for (row, end), (key, last) in (((0, 20), (0, 33)), ((20, 90), (38, 78))):
        q, k, v = (
            x[a:b].transpose(0, 1)[None]
            for x, (a, b) in zip(qkv, ((row, end), (key, last), (key, last)), strict=True)
        )
        exact, exact_lse = definition(q, k, v, window)
        assert torch.allclose(o[row:end].double(), exact[0].transpose(0, 1), rtol=0, atol=3e-3)
        assert torch.allclose(lse[:, row:end].double(), exact_lse[0], rtol=0, atol=1e-4)


def test_offsets_that_change_in_place_are_read_again() -> None:
    qkv, of_queries, of_keys = sequences()
    first = ladder.varlen_attention(*qkv, of_queries, of_keys, 90, 78, **ON)
    of_queries[1], of_queries[2] = 30, 40
    changed = ladder.varlen_attention(*qkv, of_queries, of_keys, 90, 78, **ON)
    anew = ladder.varlen_attention(*qkv, of_queries.clone(), of_keys, 90, 78, **ON)
    assert torch.equal(changed, anew) and not torch.equal(first, changed)


def test_it_has_the_arguments_of_torchs() -> None:
    from inspect import signature

    wanted, there = (signature(f).parameters for f in (varlen_attn, ladder.varlen_attention))
    assert [*there][: len(wanted)] == [*wanted]
    assert all(there[name].kind == wanted[name].kind for name in wanted)
    assert all(there[name].default == wanted[name].default for name in wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cu_seq_q": torch.tensor([0, 30, 20, 90], dtype=torch.int32)}, "cu_seq_q decreases from 30 to 20"),
        ({"cu_seq_k": torch.tensor([0, 33, 38, 77], dtype=torch.int32)}, "cu_seq_k ends with 77"),
        ({"cu_seq_q": torch.tensor([1, 20, 20, 90], dtype=torch.int32)}, "cu_seq_q begins with 1"),
        ({"cu_seq_q": torch.tensor([0, 90], dtype=torch.int32)}, "1 sequences and cu_seq_k 3"),
        ({"cu_seq_q": torch.tensor([0, 20, 20, 90])}, "cu_seq_q is torch.int64; it must be torch.int32"),
        ({"cu_seq_q": [0, 20, 20, 90]}, "cu_seq_q is a list"),
        ({"cu_seq_k": None}, "cu_seq_k is None"),
        ({"max_q": 69}, "max_q is 69; the longest sequence has 70 tokens"),
        ({"max_q": torch.tensor(69)}, "max_q is 69; the longest sequence has 70 tokens"),
        ({"max_k": None}, "max_k is None; it must be an integer"),
        ({"max_k": torch.tensor(40.0)}, r"max_k is tensor\(40\.\); it must be an integer"),
        ({"options": [1]}, r"options are \[1\]; they must be a mapping"),
        ({"window_size": (-3, 0)}, r"window is \(-3, 0\)"),
        ({"query": torch.zeros(1, 90, HEADS, 64).half()}, "query has 4 dimensions; it must have 3"),
        ({"key": torch.zeros(70, 2, 64).half()}, r"key is \(70, 2, 64\) and value \(78, 2, 64\)"),
        ({"enable_gqa": False}, "query has 4 heads and key 2"),
    ],
)
def test_bad_sequences_have_one_error(change: dict[str, Any], message: str) -> None:
    (q, k, v), of_queries, of_keys = sequences()
    tensors = {"query": q, "key": k, "value": v, "cu_seq_q": of_queries, "cu_seq_k": of_keys}
    with pytest.raises(InvalidProblem, match=message):
        ladder.varlen_attention(**{**tensors, "max_q": 70, "max_k": 40, **ON, **change})


def test_sequences_have_no_rung_for_other_head_dimensions() -> None:
    (q, k, v), of_queries, of_keys = sequences()
    wide = (torch.cat([x, x, x], -1) for x in (q, k, v))
    with pytest.raises(UnsupportedProblem, match="d = 192 with varlen; stages take 64, 128, 256"):
        ladder.varlen_attention(*wide, of_queries, of_keys, 70, 40, enable_gqa=True)


def test_the_longest_lengths_may_be_tensors() -> None:
    (q, k, v), of_queries, of_keys = sequences()
    longest = [torch.diff(marks).max() for marks in (of_queries, of_keys)]
    found = ladder.varlen_attention(q, k, v, of_queries, of_keys, *longest, **ON)
    assert torch.equal(found, ladder.varlen_attention(q, k, v, of_queries, of_keys, 70, 40, **ON))


def test_sequences_refuse_a_rung_that_cannot_compute_their_gradients() -> None:
    (q, k, v), of_queries, of_keys = sequences()
    with pytest.raises(UnsupportedProblem, match=named("b4")):
        ladder.varlen_attention(q.requires_grad_(), k, v, of_queries, of_keys, 70, 40, backward="b4", **ON)


@pytest.mark.parametrize("name", ["seqused_k", "block_table", "num_splits"])
def test_what_no_rung_computes_of_sequences(name: str) -> None:
    (q, k, v), of_queries, of_keys = sequences()
    with pytest.raises(UnsupportedProblem, match=f"no rung computes {name}"):
        ladder.varlen_attention(q, k, v, of_queries, of_keys, 70, 40, **{name: 1}, **ON)


def gradients_of_sequences(
    of_queries: Tensor,
    of_keys: Tensor,
    leaves: list[Tensor],
    window: tuple[int, int],
    d_o: Tensor,
    d_lse: Tensor,
) -> tuple[Tensor, ...]:
    """In float64, by the definition of each sequence; those without keys or queries have none."""
    q, k, v = leaves
    total = torch.zeros((), dtype=torch.float64)
    for b in range(len(of_queries) - 1):
        rows, keys = (slice(int(x[b]), int(x[b + 1])) for x in (of_queries, of_keys))
        if rows.start == rows.stop or keys.start == keys.stop:
            continue
        one = definition(
            *(x[part].transpose(0, 1)[None] for x, part in ((q, rows), (k, keys), (v, keys))), window
        )
        total = total + (one[0][0].transpose(0, 1) * d_o[rows]).sum() + (one[1][0] * d_lse[:, rows]).sum()
    return torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (9, 2)])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.usefixtures("both_functions")
def test_gradients_of_sequences(window: tuple[int, int], is_compiled: bool) -> None:
    """All rows see a key, so lse is finite: of 20 queries and 33 keys, and of 40 and 70."""
    generator = torch.Generator().manual_seed(2)
    shapes = ((60, HEADS, 64), (103, KV_HEADS, 64), (103, KV_HEADS, 64))
    ours = [torch.randn(shape, generator=generator).half().requires_grad_() for shape in shapes]
    theirs = [x.detach().double().requires_grad_() for x in ours]
    marks = [torch.tensor(x, dtype=torch.int32) for x in ([0, 20, 60], [0, 33, 103])]

    def model(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        aux = AuxRequest(lse=True)
        return ladder.varlen_attention(q, k, v, *marks, 40, 70, window_size=window, return_aux=aux, **ON)

    torch._dynamo.reset()
    o, lse = (torch.compile(model, backend="aot_eager", fullgraph=True) if is_compiled else model)(*ours)
    d_o, d_lse = torch.randn(o.shape).half(), torch.randn(lse.shape)
    found = torch.autograd.grad((o, lse), ours, (d_o, d_lse))
    wanted = gradients_of_sequences(*marks, theirs, window, d_o.double(), d_lse.double())
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == torch.float16 and mine.shape == other.shape
        assert torch.allclose(mine.double(), other, rtol=0, atol=4e-3 * float(other.abs().max()))


@pytest.mark.usefixtures("both_functions")
def test_sequences_without_keys_or_queries_have_no_gradient() -> None:
    (q, k, v), of_queries, of_keys = sequences()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    of_queries[2] = 33  # sequence 1 has 13 queries and 5 keys
    of_keys[2] = 33  # and now none
    o = ladder.varlen_attention(*leaves, of_queries, of_keys, 70, 45, window_size=(-1, 0), **ON)
    d_q, d_k, _ = torch.autograd.grad(o, leaves, torch.ones_like(o))
    assert not d_q[20:33].any() and d_q[:20].any() and d_q[33:].any()
    assert d_k.isfinite().all()


@pytest.mark.usefixtures("both_functions")
def test_a_second_gradient_of_sequences_is_refused() -> None:
    qkv, of_queries, of_keys = sequences()
    leaves = [x.requires_grad_() for x in qkv]
    o = ladder.varlen_attention(*leaves, of_queries, of_keys, 70, 40, **ON)
    (d_q,) = torch.autograd.grad(o.sum(), leaves[:1], create_graph=True)
    with pytest.raises(UnsupportedProblem, match="first gradients only"):
        d_q.sum().backward()


def test_what_torch_asks_of_the_operators_of_sequences() -> None:
    qkv, of_queries, of_keys = sequences()
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    choices = (None, [9, 2], True)
    given = (*qkv, of_queries, of_keys, 70, 40, *choices)
    torch.library.opcheck(varlen.varlen_operator, given, {"arch": "sm_90a"}, test_utils=tests)
    o, lse = torch.ops.ladder.varlen_attention(*given, arch="sm_90a")
    given = (torch.ones_like(o), None, *qkv, of_queries, of_keys, o, lse, *choices[:2])
    torch.library.opcheck(varlen.varlen_backward_operator, given, {"arch": "sm_90a"}, test_utils=tests)
    with pytest.raises(InvalidProblem, match=r"d_o is \(89, 4, 64\); of this query it must be \(90, 4, 64\)"):
        torch.ops.ladder.varlen_attention_backward(given[0][1:], *given[1:])
