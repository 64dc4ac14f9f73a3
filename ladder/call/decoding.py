"""Decoding: attention of a few queries over a cache of keys and values.

For ``torch.compile`` it is ``torch.ops.ladder.decode_attention``, or ``decode_attention_append`` if it stores
new keys and values in the caches. The compiler knows their outputs' shapes and that the latter changes the
caches. Both exist after the first use of :func:`decode_attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ladder.call import flops
from ladder.call.kept import Kept, kind_of
from ladder.call.runs import AUTO, Choice, Run, highest, lies_in_rows, option_words, prepare
from ladder.call.transforms import autocast, needs_operator
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import DecodingProblem, check_descales, check_lengths, problem_of_cache, require_memory
from ladder.stages import parse_options

#: Tensors in the order of :data:`_INPUTS`.
_Tensors = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def decode_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seqused_k: Tensor,
    block_table: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    check: bool = True,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of up to 8 queries per sequence over a cache: query (B, H, N, d) -> (o, lse).

    Sequence b has ``seqused_k[b]`` keys (B, int32), which may be 0: then o = 0 and lse = -inf. Without a
    ``block_table`` the caches are (B, Hkv, M, d). With one, (B, pages per sequence) in int32, they are
    pages (pages, Hkv, page_size, d), and key j of sequence b is row j % page_size of the page
    ``block_table[b, j // page_size]``; page_size is a multiple of 16. H is a multiple of Hkv. o (B, H, N, d)
    has query's dtype, lse (B, H, N) is fp32.

    With ``is_causal`` the queries are the last N tokens of their sequence, whose keys are in the cache: query
    i sees the keys up to i + seqused_k[b] - N. This mask is aligned to the lower right, unlike that of
    :func:`ladder.attention`.

    ``window_size`` (left, 0) is causal, and hides all but the ``left`` keys before a query's own; what no
    query sees is not read. (-1, -1), the default, is no window. ``softcap`` and ``sinks`` (H) are those of
    :func:`ladder.attention`; a sequence without keys then has lse = sink.

    The caches may be in torch.float8_e4m3fn. Then the keys of a kv head are ``k_descale[head]`` times those
    of its cache, and its values ``v_descale[head]`` times; both (Hkv) are finite, in fp32. Rungs for such
    caches take no num_splits, window, softcap or sinks.

    ``k_new`` and ``v_new`` (B, Hkv, N, d), in the caches' dtype, are the keys and values of the queries' own
    tokens. They are first stored in the caches, as the last N of the ``seqused_k[b]`` keys of each sequence,
    by torch, without waiting for the GPU; a captured graph stores those of its replay.

    The caches may have strides, and are never copied: rows are contiguous and begin at multiples of 16 bytes
    from each other, and heads at multiples of a row or of 64 elements. A cache (B, M, Hkv, d) is passed as
    ``cache.transpose(1, 2)``.

    Under autocast, query, k_new and v_new are converted to its dtype; the caches must have it already.

    ``num_splits`` is the number of parts that each sequence's keys are split into; by default the rung
    chooses. With the highest rung, the bits of a sequence's output do not depend on the other sequences of
    the batch; rungs that take num_splits do not promise that.

    The lengths, the pages in use and the factors are checked, which waits for the GPU once for tensors that
    torch has not changed since; without ``check``, and while a CUDA graph is captured, they are not read, and
    wrong ones have undefined results. Nothing else waits for the GPU. No rung has gradients. ``stage``,
    ``arch`` and ``options`` are those of :func:`ladder.attention`.

    Raises :class:`InvalidProblem` for mismatched tensors, lengths that the cache does not hold, pages that it
    does not have and factors that are not finite; :class:`UnsupportedProblem` for what no rung computes.

    >>> query = torch.randn(2, 4, 1, 64, dtype=torch.float16)
    >>> k_cache, v_cache = (torch.randn(2, 2, 80, 64, dtype=torch.float16) for _ in range(2))
    >>> lengths = torch.tensor([80, 7], dtype=torch.int32)  # keys that each sequence has so far
    >>> o, lse = ladder.decode_attention(query, k_cache, v_cache, lengths)
    >>> o.shape, lse.shape
    (torch.Size([2, 4, 1, 64]), torch.Size([2, 4, 1]))
    """
    if torch.is_grad_enabled() and any(
        getattr(tensor, "requires_grad", False)
        for tensor in (query, k_cache, v_cache, sinks, k_descale, v_descale, k_new, v_new)
    ):
        raise UnsupportedProblem(
            "a tensor requires a gradient, and decoding has none",
            "Call it under torch.no_grad(), or pass detached tensors.",
        )
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or torch._C._is_any_autocast_enabled():
        [query] = autocast(query)
        if k_new is not None and v_new is not None:
            k_new, v_new = autocast(k_new, v_new)
    splits = 0 if num_splits is None else num_splits
    window = tuple(window_size) if isinstance(window_size, list) else window_size
    tensors = (query, k_cache, v_cache, seqused_k, block_table, sinks, k_descale, v_descale)
    words = option_words(options) if options else ""
    # While torch.compile traces, only call an operator; it checks its arguments when it runs.
    names = ("query", "k_cache", "v_cache")
    if is_compiling or needs_operator(query, k_cache, v_cache, sinks, names):
        choices = (is_causal, scale, splits, window, softcap, check, stage, arch or "", words)
        outputs: tuple[Tensor, Tensor] = (
            decoding_operator(*tensors, *choices)
            if k_new is None and v_new is None
            else appending_operator(*tensors, k_new, v_new, *choices)
        )
        return outputs
    given = (is_causal, scale, splits, window, softcap, stage, arch or "", words)
    return _decode(tensors, k_new, v_new, given, check)


def _decode(
    tensors: _Tensors,
    k_new: Tensor | None,
    v_new: Tensor | None,
    given: tuple[Any, ...],
    check: bool,
) -> tuple[Tensor, Tensor]:
    query, k_cache, v_cache, seqused_k, block_table, *rows = tensors
    if k_new is not None or v_new is not None:
        _require_new(query, k_cache, v_cache, k_new, v_new)
    kind = kind_of(tensors, *given)
    found = _runs.get(kind)
    if found is None:
        is_causal, scale, splits, window, softcap, stage, arch, words = given
        problem = problem_of_cache(*tensors[:5], is_causal, scale, splits, window, softcap, *rows)
        for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            _require_rows(name, cache, problem)
        if check:
            _check(problem, tensors, k_new is not None)
        inputs = dict(zip(_INPUTS, (query.contiguous(), *tensors[1:]), strict=True))
        run = prepare(problem, inputs, query.device, Choice(stage, arch, tuple(parse_options(words).items())))
        found = problem, run
        _runs.keep(kind, found)
    elif check:
        _check(found[0], tensors, k_new is not None)
    if k_new is not None and v_new is not None:
        _append(k_cache, k_new, seqused_k, block_table)
        _append(v_cache, v_new, seqused_k, block_table)
    contiguous = (None if row is None else row.contiguous() for row in rows)
    o, lse = found[1](query.contiguous(), *tensors[1:5], *contiguous)
    return o, lse


_INPUTS = ("q", "k_cache", "v_cache", "seqused_k", "block_table", "sinks", "k_descale", "v_descale")
_runs: Kept[tuple[DecodingProblem, Run]] = Kept(1024)
#: Tensors that have been checked, so that no other tensor can have their identity.
_checked: Kept[Sequence[Tensor | None]] = Kept(64)


def _require_new(
    query: Tensor, k_cache: Tensor, v_cache: Tensor, k_new: Tensor | None, v_new: Tensor | None
) -> None:
    """Raises :class:`InvalidProblem` unless they are the queries' own keys and values, and can be stored."""
    if k_new is None or v_new is None:
        raise InvalidProblem("k_new and v_new are the keys and values of the same tokens: pass both or none")
    for name, new in (("k_new", k_new), ("v_new", v_new)):
        if not isinstance(new, Tensor):
            raise InvalidProblem(f"{name} is a {type(new).__name__}; it must be a torch.Tensor")
        wanted = (len(query), k_cache.shape[1], *query.shape[2:])
        if new.shape != wanted or new.dtype != k_cache.dtype or new.device != k_cache.device:
            raise InvalidProblem(
                f"{name} is {tuple(new.shape)}, {new.dtype} on {new.device}; with this query and cache "
                f"it must be {wanted}, {k_cache.dtype} on {k_cache.device}"
            )
        require_memory(name, new)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if isinstance(cache, Tensor) and cache._is_zerotensor():
            raise InvalidProblem(
                f"{name} is torch's zero tensor: nothing can be stored", f"Pass {name}.clone()."
            )
        require_memory(name, cache)


def _append(cache: Tensor, new: Tensor, seqused_k: Tensor, block_table: Tensor | None) -> None:
    """Stores rows (B, Hkv, N, d) as the last ones of their sequences."""
    count = new.shape[2]
    row = seqused_k[:, None].long() + torch.arange(-count, 0, device=cache.device)
    place = torch.arange(len(new), device=cache.device)[:, None]
    if block_table is not None:
        place = block_table.gather(1, row // cache.shape[2]).long()
        row = row % cache.shape[2]
    if cache.itemsize == 1:  # torch stores few dtypes of 8 bits by index
        cache, new = cache.view(torch.uint8), new.view(torch.uint8)
    cache[place, :, row] = new.transpose(1, 2)


def _check(problem: DecodingProblem, tensors: _Tensors, appends: bool) -> None:
    """Checks lengths, pages and factors that are not known to be right, unless a CUDA graph is captured."""
    _, k_cache, _, seqused_k, block_table, _, k_descale, v_descale = tensors
    if seqused_k.is_cuda and torch.cuda.is_current_stream_capturing():
        return

    def check() -> None:
        check_lengths(problem, seqused_k, block_table, len(k_cache))
        if appends and int(seqused_k.min()) < problem.q_len:
            raise InvalidProblem(
                f"seqused_k has a sequence of {int(seqused_k.min())} keys; with k_new it counts the "
                f"{problem.q_len} new ones, too"
            )

    least = problem.q_len if appends else 0
    _once((seqused_k, block_table), (problem.kv_len, problem.page_size, len(k_cache), least), check)
    if k_descale is not None and v_descale is not None:
        _once((k_descale, v_descale), (), lambda: check_descales(k_descale, v_descale))


def _once(tensors: Sequence[Tensor | None], others: tuple[int, ...], check: Callable[[], None]) -> None:
    """Calls ``check`` unless it has passed for these numbers and tensors, unchanged since."""
    try:
        key: tuple[Any, ...] = (*[None if x is None else (id(x), x._version) for x in tensors], *others)
    except RuntimeError:
        key = ()  # an inference tensor has no version
    if _checked.get(key) is None:
        check()
        _checked.keep(key, tensors)


def _require_rows(name: str, cache: Tensor, problem: DecodingProblem) -> None:
    """Raises :class:`InvalidProblem` for a cache that rungs do not take as it lies, and
    :class:`UnsupportedProblem` if its head dimension is the reason.
    """
    if cache.is_neg():
        raise InvalidProblem(f"{name} has torch's negative bit set", f"Pass {name}.resolve_neg().")
    if not lies_in_rows(cache) or cache.data_ptr() % 16:
        highest(problem)  # raises for such a head dimension
        raise InvalidProblem(
            f"{name} has the strides {tuple(cache.stride())}: rows must be contiguous and begin at multiples "
            "of 16 bytes from each other, heads at multiples of a row or of 64 elements",
            f"Pass {name}.contiguous(), once for many calls.",
        )


_OTHERS = "Tensor seqused_k, Tensor? block_table, Tensor? sinks, Tensor? k_descale, Tensor? v_descale"
_CHOICES = (
    "bool is_causal, float? scale, int num_splits, int[] window_size, float? softcap, bool check, str stage, "
    "str arch, str options) -> (Tensor o, Tensor lse)"
)


def _run(*arguments: Any) -> tuple[Tensor, Tensor]:
    """:func:`_run_appending` without new keys and values."""
    return _run_appending(*(*arguments[:8], None, None, *arguments[8:]))


def _run_appending(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seqused_k: Tensor,
    block_table: Tensor | None,
    sinks: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    k_new: Tensor | None,
    v_new: Tensor | None,
    is_causal: bool,
    scale: float | None,
    num_splits: int,
    window_size: Sequence[int],
    softcap: float | None,
    check: bool,
    stage: str,
    arch: str,
    options: str,
) -> tuple[Tensor, Tensor]:
    """:func:`decode_attention` with argument types that operators support.

    ``options`` is ``NAME=VALUE,...``.
    """
    tensors = (query, k_cache, v_cache, seqused_k, block_table, sinks, k_descale, v_descale)
    given = (is_causal, scale, num_splits, tuple(window_size), softcap, stage, arch, options)
    return _decode(tensors, k_new, v_new, given, check)


def _shapes(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


def _operator(name: str, run: Any, arguments: str, changed: tuple[str, ...]) -> Any:
    schema = f"({arguments}, {_CHOICES}"
    made = torch.library.custom_op(f"ladder::{name}", run, mutates_args=changed, schema=schema)
    made.register_fake(_shapes)
    return made


#: ``torch.ops.ladder.decode_attention`` and ``torch.ops.ladder.decode_attention_append``.
decoding_operator = _operator(
    "decode_attention",
    _run,
    f"Tensor query, Tensor k_cache, Tensor v_cache, {_OTHERS}",
    (),
)
appending_operator = _operator(
    "decode_attention_append",
    _run_appending,
    f"Tensor query, Tensor(a!) k_cache, Tensor(b!) v_cache, {_OTHERS}, Tensor? k_new, Tensor? v_new",
    ("k_cache", "v_cache"),
)
flops.counts_sequences(torch.ops.ladder.decode_attention, flops.pairs_of_cache)
flops.counts_sequences(torch.ops.ladder.decode_attention_append, flops.pairs_of_cache)
