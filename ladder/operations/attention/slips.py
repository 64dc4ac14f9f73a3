"""Common slips and the outputs they produce, to explain a wrong output that matches one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ladder.common.wording import said
from ladder.operations.attention.inputs import make_inputs, make_sinks
from ladder.operations.attention.problem import Problem
from ladder.operations.attention.reference import AttentionReference
from ladder.operations.terms import KEYS, factor_of_first_terms, range_of_others, range_of_terms

#: Problems with more logits are not searched, which would take too long.
_MOST_LOGITS = 2**22
#: Heights of a tile of keys to try.
_TILES = (16, 32, 48, 64, 128)
_LOG2E = 1 / math.log(2)


class Inputs(NamedTuple):
    """q (B, H, N, d), k and v (B, Hkv, M, d), and sinks (H) if there are any."""

    q: Tensor
    k: Tensor
    v: Tensor
    sinks: Tensor | None


def inputs_of(problem: Problem, device: str) -> Inputs:
    """The inputs that the problem is tried on."""
    return Inputs(*make_inputs(problem, device), make_sinks(problem, device))


class _Scores:
    """The float64 data that slips are simulated with: logits (B, H, N, M), unscaled and unmasked."""

    def __init__(self, problem: Problem, inputs: Inputs) -> None:
        q, k, v = (tensor.double() for tensor in inputs[:3])
        group = problem.heads // k.shape[1]
        self.q, self.k = q, k
        self.v = v.repeat_interleave(group, 1)
        self.kv = v
        self.logits = q @ k.repeat_interleave(group, 1).transpose(2, 3)
        self.scale = problem.softmax_scale
        self.softcap = problem.softcap
        sinks = inputs.sinks
        #: (1, H, 1, 1)
        self.sinks = None if sinks is None else sinks.double()[None, :, None, None]
        i, j = torch.arange(problem.q_len)[:, None], torch.arange(problem.kv_len)
        #: The distance by which a key is ahead of its query.
        self.ahead = j - i
        self.is_last = (j == problem.kv_len - 1).expand(self.ahead.shape)
        begin, end = problem.band
        self.masked = (self.ahead < begin) | (self.ahead >= end)

    def scaled(self, masked: Tensor | None = None, factor: float = 1.0) -> Tensor:
        masked = self.masked if masked is None else masked
        s = self.logits * (self.scale * factor)
        if self.softcap is not None:
            s = self.softcap * torch.tanh(s / self.softcap)
        return s.masked_fill(masked, -math.inf)

    def attention(self, masked: Tensor | None = None, factor: float = 1.0) -> Tensor:
        masked = self.masked if masked is None else masked
        return self.weighted(self.scaled(masked, factor))

    def weighted(self, s: Tensor, sinks: float = 1.0) -> Tensor:
        """o of masked logits, with ``sinks`` times each sink's term."""
        lse = s.logsumexp(-1, keepdim=True)
        if self.sinks is not None and sinks:
            lse = torch.logaddexp(lse, self.sinks + math.log(sinks))
        return (s - lse.masked_fill(lse == -math.inf, 0.0)).exp() @ self.v


def slip_of_o(
    problem: Problem, o: Tensor, reference: AttentionReference, inputs: Inputs | None = None
) -> str:
    """Describes the slip that produces o (B, H, N, d); "" if it is none of the known ones. ``inputs`` are by
    default those that the problem is tried on.
    """
    if _is_too_large(problem):
        return ""
    scores = _Scores(problem, inputs or inputs_of(problem, o.device.type))
    tolerance = 4 * reference.error_bound
    for says, wrong in _outputs(problem, scores):
        # A kernel that does not expect rows without keys divides 0 by 0.
        got = o.double().masked_fill((wrong == 0) & o.isnan(), 0.0)
        if _is_close(got, wrong, tolerance):
            return says
    if problem.sinks or problem.softcap is not None:
        return ""
    return _other_heads(problem, o, reference, scores, tolerance)


def keys_of_o(
    problem: Problem,
    o: Tensor,
    reference: AttentionReference,
    place: tuple[int, int, int],
    *,
    lse_is_right: bool,
    inputs: Inputs | None = None,
) -> str:
    """Describes the keys by which the row of o at (batch, head, row) is wrong; "" if it is not by some that
    follow each other, and of problems with sinks or a softcap.
    """
    if _is_too_large(problem) or problem.sinks or problem.softcap is not None:
        return ""
    scores = _Scores(problem, inputs or inputs_of(problem, o.device.type))
    batch, head, row = place
    got, hidden = o[place].double(), scores.masked[row]
    s = scores.logits[place] * scores.scale
    weights = (s - s.masked_fill(hidden, -math.inf).logsumexp(0)).exp()
    shares = weights.masked_fill(hidden, 0.0)
    error, tolerance = got - reference.o[place], 4 * reference.error_bound
    v = scores.v[batch, head]
    if lse_is_right:
        terms, k = weights[:, None] * v, scores.k[batch, head // (problem.heads // scores.k.shape[1])]
        seen, others = (terms.masked_fill(out[:, None], 0.0) for out in (hidden, ~hidden))
        says = range_of_terms(error, seen, others, tolerance, KEYS)
        says = says or factor_of_first_terms(error, seen, tolerance, KEYS)
        if says:
            return said("{says}, only in o: l is right", says=says)
        keys = range_of_others(error, seen, shares[:, None] * k, tolerance, KEYS)
        if keys:
            return said("where K stands for V at {keys}", keys=keys)
    # A row o is the softmax over just the keys whose w (v - o) add up to 0; over all keys they add up to the
    # right row minus o. So these terms explain the error as those of a plain sum do.
    terms = weights[:, None] * (v - got)
    seen, others = (terms.masked_fill(out[:, None], 0.0) for out in (hidden, ~hidden))
    says = range_of_terms(error, seen, others, tolerance, KEYS, shares)
    return says or factor_of_first_terms(error, seen, tolerance, KEYS, shares)


def slip_of_lse(
    problem: Problem, lse: Tensor, reference: AttentionReference, inputs: Inputs | None = None
) -> str:
    """Describes the slip that produces lse (B, H, N); "" if it is none of the known ones."""
    if _is_too_large(problem) or problem.sinks:
        return ""
    s = _Scores(problem, inputs or inputs_of(problem, lse.device.type)).scaled()
    m = s.amax(-1)
    log_l = reference.lse - m
    known = (
        (said("It is m + l: the log of l is missing."), m + log_l.exp()),
        (said("It is log(l): m is missing."), log_l),
        (said("It is m: log(l) is missing."), m),
        (said("It is log(l) - m: m has the wrong sign."), log_l - m),
        (said("It is m + log2(l), and the natural log is wanted."), m + log_l * _LOG2E),
        (said("It is m log2(e) + log(l): m is in units of exp2."), m * _LOG2E + log_l),
        ("It is log(m + l).", (m + log_l.exp()).log()),
    )
    tolerance = max(4 * reference.lse_bound, 2e-4)
    return next((says for says, wrong in known if _is_close(lse.double(), wrong, tolerance)), "")


def _is_too_large(problem: Problem) -> bool:
    return problem.batch * problem.heads * problem.q_len * problem.kv_len > _MOST_LOGITS


def _is_close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Whether all elements are close, with NaN in the same places."""
    return bool(torch.isclose(got, wanted, rtol=0.0, atol=tolerance, equal_nan=True).all())


def _outputs(problem: Problem, scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields the output of each slip that affects all heads alike."""
    yield from _variants(problem, scores)
    if problem.is_causal:
        yield from _causal_masks(problem, scores)
    elif problem.window == (-1, 0):
        yield from _masks_at_the_lower_right(problem, scores)
    elif problem.window is not None:
        yield from _windows(problem, scores)
    else:
        says = said("It equals the result with a causal mask, and the problem has none.")
        for corner in {0, problem.kv_len - problem.q_len}:
            yield says, scores.attention(scores.ahead > corner)
    yield (
        said("It equals the result without the last key."),
        scores.attention(scores.masked | scores.is_last),
    )
    factors = {
        said("log2(e) times too large: exp and exp2 are mixed up"): _LOG2E,
        said("log2(e) times too small: exp and exp2 are mixed up"): 1 / _LOG2E,
    }
    if scores.scale:
        factors |= {said("not scaled"): 1 / scores.scale, said("scaled twice"): scores.scale}
    for what, factor in factors.items():
        says = said("It equals the result with logits that are {what}.", what=what)
        yield says, scores.attention(factor=factor)
    yield from _other_factors(scores)
    if not problem.is_causal and problem.window is None:
        says = said("It equals the result where one key past the end takes part, with a logit of 0.")
        yield says, _padded(scores, 1)[1]
    for tile in _TILES:
        if problem.kv_len > tile:
            yield from _of_tiles(scores, tile)
            yield from _misplaced(scores, tile)
        if problem.kv_len % tile and not problem.is_causal and problem.window is None:
            padded = tile - problem.kv_len % tile
            yield _padded(scores, padded)


def _causal_masks(problem: Problem, scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields the output of each slip in a causal mask."""
    ahead = scores.ahead
    yield said("It equals the result without the causal mask."), scores.attention(ahead > problem.kv_len)
    for says, most in (
        (said("It equals the result where a query sees the key after its own."), 1),
        (said("It equals the result where a query does not see its own key."), -1),
        (
            said("It equals the result of a mask aligned to the lower right."),
            problem.kv_len - problem.q_len,
        ),
    ):
        yield says, scores.attention(ahead > most)
    for tile in _TILES:
        left = -(torch.arange(problem.q_len)[:, None] + 1) % tile
        says = said("It equals the result where the mask hides only whole tiles of {tile} keys.", tile=tile)
        yield says, scores.attention(ahead > left)


def _masks_at_the_lower_right(problem: Problem, scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields the output of each slip in a causal mask whose last query sees the last key."""
    ahead, corner = scores.ahead, problem.kv_len - problem.q_len
    for says, most in (
        (said("It equals the result without the causal mask."), problem.kv_len),
        (said("It equals the result where a query sees the key after its own."), corner + 1),
        (said("It equals the result where a query does not see its own key."), corner - 1),
        (said("It equals the result of a mask aligned to the upper left."), 0),
    ):
        yield says, scores.attention(ahead > most)


def _variants(problem: Problem, scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields the output of each slip in a softcap or in sinks."""
    if problem.softcap is not None:
        s, c = scores.logits * scores.scale, problem.softcap
        for says, wrong in (
            (said("without the softcap"), s),
            (said("of logits that are not multiplied by the softcap again"), torch.tanh(s / c)),
            (said("of logits that are not divided by the softcap"), c * torch.tanh(s)),
            (
                said("of products that are neither scaled nor divided by the softcap"),
                c * torch.tanh(scores.logits),
            ),
            (
                said("of a softcap before the scale: tanh of the bare products"),
                scores.scale * torch.tanh(scores.logits),
            ),
            (said("of a softcap before the scale"), scores.scale * c * torch.tanh(scores.logits / c)),
        ):
            o = scores.weighted(wrong.masked_fill(scores.masked, -math.inf))
            yield said("It equals the result {says}.", says=says), o
    if scores.sinks is not None:
        s = scores.scaled()
        yield said("It equals the result without the sinks."), scores.weighted(s, 0.0)
        yield said("It equals the result where each row has its sink four times."), scores.weighted(s, 4.0)


def _windows(problem: Problem, scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields the output of each slip in a window."""
    (begin, end), ahead = problem.band, scores.ahead
    yield said("It equals the result without the window."), scores.attention(ahead > problem.kv_len)
    yield said("It equals the result without the window's left side."), scores.attention(ahead >= end)
    yield said("It equals the result without the window's right side."), scores.attention(ahead < begin)
    for says, left, right in (
        (said("It equals the result where a query sees a key fewer on the left."), -1, 0),
        (said("It equals the result where a query sees a key fewer on the right."), 0, -1),
        (said("It equals the result where a query sees a key more on the left."), 1, 0),
        (said("It equals the result where a query sees a key more on the right."), 0, 1),
    ):
        yield says, scores.attention((ahead < begin - left) | (ahead >= end + right))
    corner = problem.kv_len - problem.q_len
    upper_left = (ahead < begin - corner) | (ahead >= end - corner)
    yield said("It equals the result of a window aligned to the upper left."), scores.attention(upper_left)


def _padded(scores: _Scores, count: int) -> tuple[str, Tensor]:
    s = scores.scaled()
    says = said(
        "It equals the result where {count} keys past the end take part, with logits of 0.", count=count
    )
    return says, (s.exp() @ scores.v) / (s.exp().sum(-1, keepdim=True) + count)


def _other_factors(scores: _Scores) -> Iterator[tuple[str, Tensor]]:
    """Yields slips in which a tile of another matrix is multiplied; K stands for V is one of keys_of_o's."""
    group = scores.q.shape[1] // scores.k.shape[1]
    k = scores.k.repeat_interleave(group, 1)

    def attention(q: Tensor, k: Tensor) -> Tensor:
        s = (q @ k.mT * scores.scale).masked_fill(scores.masked, -math.inf)
        return torch.softmax(s, -1) @ scores.v

    yield said("It equals the result where V stands for K."), attention(scores.q, scores.v)
    rows = scores.q.shape[2]
    if k.shape[2] >= rows:
        yield said("It equals the result where K stands for Q."), attention(k[:, :, :rows], k)


def _misplaced(scores: _Scores, tile: int) -> Iterator[tuple[str, Tensor]]:
    """Yields slips in which the tiles of K and V are not those that they should be."""
    j = torch.arange(scores.logits.shape[-1])
    for says, found in (
        (said("tiles of {tile} keys begin at keys 0, 1, 2 and so on", tile=tile), j % tile + j // tile),
        (said("each tile of {tile} keys is treated as the first tile", tile=tile), j % tile),
        (
            said("a tile of {tile} keys begins one key after the start of the tile before it", tile=tile),
            torch.where(j < tile, j, j - tile + 1),
        ),
    ):
        s = (scores.logits[..., found] * scores.scale).masked_fill(scores.masked, -math.inf)
        says = said("It equals the result where {says}.", says=says)
        yield says, torch.softmax(s, -1) @ scores.v[:, :, found]


def _of_tiles(scores: _Scores, tile: int) -> Iterator[tuple[str, Tensor]]:
    """Yields slips in which tiles of keys are not rescaled to a common maximum, or not as they should be."""
    s = scores.scaled()
    running = torch.stack([part.amax(-1) for part in s.split(tile, -1)], -1).cummax(-1).values
    of_keys = running.repeat_interleave(tile, -1)[..., : s.shape[-1]]

    def weights(times: float) -> Tensor:
        """Each key's weight if exp(times * (m_old - m_new)) is the factor onto a new maximum."""
        return (s - of_keys + times * (of_keys - running[..., -1:])).exp()

    added, true = weights(0.0), weights(1.0)
    l_added, l_true = added.sum(-1, keepdim=True), true.sum(-1, keepdim=True)
    says = said(
        "It equals the result where tiles of {tile} keys are added up on different maxima.", tile=tile
    )
    yield says, added @ scores.v / l_added
    says = said(
        "It equals the result where {one} is rescaled to each new maximum and {other} is not, with tiles of "
        "{tile} keys."
    )
    yield says.format(one="l", other="o", tile=tile), added @ scores.v / l_true
    yield says.format(one="o", other="l", tile=tile), true @ scores.v / l_added
    for what, times in _exponents_of_rescaling(scores.scale):
        wrong = weights(times)
        says = said(
            "It equals the result where the factor onto each new maximum is {what}, with tiles of "
            "{tile} keys.",
            what=what,
            tile=tile,
        )
        yield says, wrong @ scores.v / wrong.sum(-1, keepdim=True)
    for what, old_sum in (
        (said("the sum of the tiles before counts as 1"), lambda total, factor: factor),
        (
            said("the factor onto each new maximum is added to the sum of the tiles before"),
            lambda total, factor: total + factor,
        ),
    ):
        says = said("It equals the result where {what}, with tiles of {tile} keys.", what=what, tile=tile)
        yield says, _divided_by_tile(scores, s, tile, old_sum)
    first = (s.shape[-1] - 1) // tile * tile
    alone = torch.softmax(s[..., first:], -1) @ scores.v[..., first:, :]
    yield said("It equals the result of only the last {count} keys.", count=s.shape[-1] - first), alone


def _exponents_of_rescaling(scale: float) -> Iterator[tuple[str, float]]:
    """Yields what multiplies m_old - m_new in the exponent of each wrong factor."""
    yield said("made by exp2 instead of exp"), 1 / _LOG2E
    yield said("made by exp instead of exp2"), _LOG2E
    yield said("inverted"), -1.0
    yield said("multiplied in twice"), 2.0
    if scale:
        yield said("made of maxima that are scaled once more"), scale
        yield said("made of maxima that are not scaled"), 1 / scale


def _divided_by_tile(
    scores: _Scores, s: Tensor, tile: int, old_sum: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Divides o by the sum after each tile, as v1 does; ``old_sum``, of that sum and the factor onto the new
    maximum stands for the sum of the tiles before.
    """
    o, total = torch.zeros_like(scores.q), torch.zeros_like(s[..., :1])
    m = torch.full_like(total, -math.inf)
    for part, values in zip(s.split(tile, -1), scores.v.split(tile, 2), strict=True):
        m_new = torch.maximum(m, part.amax(-1, keepdim=True))
        weights = (part - m_new).exp()
        old = old_sum(total, (m - m_new).exp())
        m, total = m_new, old + weights.sum(-1, keepdim=True)
        o = (old * o + weights @ values) / total
    return o


def _other_heads(
    problem: Problem, o: Tensor, reference: AttentionReference, scores: _Scores, tolerance: float
) -> str:
    """Reports if each wrong head is right for the keys and values of another kv head."""
    group = problem.heads // scores.k.shape[1]
    sentences = []
    wrong = ((o.double() - reference.o).abs() > reference.limits["o"]).flatten(2).any(-1)
    for batch, head in wrong.nonzero().tolist():
        found = _source_of(o[batch, head].double(), scores, batch, head, tolerance)
        if found is None:
            return ""
        sentences.append(
            said(
                "Head {head} of batch {batch} reads kv head {read} of batch {read_batch}; it should "
                "read kv head {right} of batch {batch}.",
                head=head,
                batch=batch,
                read=found[1],
                read_batch=found[0],
                right=head // group,
            )
        )
    return " ".join(sentences[:3])


def _source_of(o: Tensor, scores: _Scores, batch: int, head: int, tolerance: float) -> tuple[int, int] | None:
    for other_batch in range(scores.k.shape[0]):
        for kv_head in range(scores.k.shape[1]):
            s = scores.q[batch, head] @ scores.k[other_batch, kv_head].T * scores.scale
            weights = torch.softmax(s.masked_fill(scores.masked, -math.inf), -1)
            if _is_close(o, weights @ scores.kv[other_batch, kv_head], tolerance):
                return other_batch, kv_head
    return None
