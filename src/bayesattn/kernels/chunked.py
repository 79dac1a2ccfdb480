"""Attention in chunks of queries, in plain torch: memory linear in the length, any device, forward and backward.

Every chunk is computed from queries, keys and values alone, in the backward pass again: nothing of size queries × keys is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bayesattn.kernels.call import Call, Saved
from bayesattn.numerics import counter_gamma
from bayesattn.numerics.counter_noise import CounterNoise
from bayesattn.numerics.formulas import SMALLEST_LOG_CONCENTRATION, exp_with_linear_tail, gamma_kl

CHUNK_ELEMENTS = 1 << 19
"""Scores that are computed at once: few enough to stay in a CPU's cache, so many that the calls of torch cost less than their work."""
GPU_CHUNK_ELEMENTS = 1 << 25
LEAST_QUERIES = 128
"""Queries that are taken together at least, if there are so many: the gradients of all keys are added up once for each chunk."""


def forward(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """See `operator.attention`."""
    output, log_total, statistics = call.empty_results()
    batch = call.query.shape[0]
    for chunk in _chunks(call):
        b, h, q = chunk.examples, chunk.heads, chunk.queries
        for plane, sums in enumerate(chunk.statistics()):
            statistics[plane, b, h, q] = 0.0 if sums is None else sums
        for sample in range(call.samples):
            shifted = slice(b.start + sample * batch, b.stop + sample * batch)
            logits, _ = chunk.logits(sample * batch)
            if not chunk.is_ordinary:
                output[shifted, h, q] = chunk.dropped(chunk.normalised(logits), sample * batch) @ chunk.value
                log_total[shifted, h, q] = logits.logsumexp(-1)  # not used: the backward pass normalises again
                continue
            shares, highest = _exponentials(logits, in_place=logits is not chunk.scores)
            total = shares.sum(-1, keepdim=True)
            log_total[shifted, h, q] = (total.log() + highest).squeeze(-1)
            summed = chunk.dropped(shares, sample * batch) @ chunk.value
            output[shifted, h, q] = summed.div_(total.masked_fill_(total == 0.0, 1.0))  # an empty row is zero
    return output, log_total, statistics


def backward(saved: Saved, call: Call) -> tuple[Tensor, ...]:
    """See `operator.attention_backward`."""
    grad_query, grad_key, grad_value, grad_scale, grad_prior_logits, grad_prior_total = call.zero_gradients()
    for chunk in _chunks(call, saved.grad_output, saved.grad_statistics):
        b, h, q = chunk.examples, chunk.heads, chunk.queries
        upstream = saved.grad_output[b, h, q]
        weights, noise = chunk.weights(saved.log_total[b, h, q].unsqueeze(-1))
        grad_value[b, chunk.key_heads, chunk.keys] += chunk.by_key_head(
            chunk.dropped(weights, 0).transpose(-2, -1) @ upstream
        )
        gradient = chunk.dropped(upstream @ chunk.value.transpose(-2, -1), 0)
        if chunk.is_ordinary:
            gradient.sub_((upstream * saved.output[b, h, q]).sum(-1, keepdim=True)).mul_(weights)
        else:
            gradient = chunk.through_softmax(gradient, weights)
        if call.uses_gamma:
            grad_scale[b, h, q] = chunk.add_gradient_of_concentration(
                gradient, noise, saved.grad_statistics[:, b, h, q].unsqueeze(-1)
            )
        elif noise is not None:
            grad_scale[b, h, q] = torch.linalg.vecdot(gradient, noise)
        of_log_share = chunk.add_gradient_of_statistics(
            gradient, saved.grad_statistics[:, b, h, q].unsqueeze(-1), saved.statistics[0, b, h, q].unsqueeze(-1)
        )
        if of_log_share is not None:
            grad_prior_logits[b, h, chunk.keys] += of_log_share.sum(-2)
            if call.statistics != "squares_log":
                grad_prior_total[b, h, q] = -of_log_share.sum(-1)
        grad_key[b, chunk.key_heads, chunk.keys] += chunk.by_key_head(gradient.transpose(-2, -1) @ call.query[b, h, q])
        grad_query[b, h, q] = gradient @ chunk.key
    return (
        grad_query.mul_(call.scale),
        grad_key.mul_(call.scale),
        grad_value,
        grad_scale,
        grad_prior_logits,
        grad_prior_total,
    )


class _Chunk:
    """The scores of some examples, heads and queries, and what is computed from them."""

    def __init__(
        self,
        call: Call,
        all_noise: CounterNoise | None,
        examples: slice,
        heads: slice,
        queries: slice,
        is_ordinary: bool,
    ):
        self.call, self.all_noise, self.is_ordinary = call, all_noise, is_ordinary
        self.examples, self.heads, self.queries = examples, heads, queries
        length = call.key.shape[2]
        # what is masked has weight 0, but 0 · NaN is NaN
        self.keys = slice(0, min(queries.stop, length) if call.causal and is_ordinary else length)
        self.key_heads = slice(heads.start // call.groups, heads.stop // call.groups)
        self.key = self._per_query_head(call.key)
        self.value = self._per_query_head(call.value)
        self.scores = (call.query[examples, heads, queries] * call.scale) @ self.key.transpose(-2, -1)
        if call.bias is not None:
            self.scores += self._part(call.bias)
        self.blocked = self._blocked()

    def _per_query_head(self, keys: Tensor) -> Tensor:
        part = keys[self.examples, self.key_heads, self.keys]
        return part if self.call.groups == 1 else part.repeat_interleave(self.call.groups, 1)

    def by_key_head(self, gradient: Tensor) -> Tensor:
        """A gradient of each query head's keys, summed over the heads that share them."""
        groups = self.call.groups
        return gradient if groups == 1 else gradient.unflatten(1, (-1, groups)).sum(2)

    def _part(self, pairs: Tensor) -> Tensor:
        places = (self.examples, self.heads, self.queries, self.keys)
        return pairs[
            tuple(slice(None) if size == 1 else place for size, place in zip(pairs.shape, places, strict=True))
        ]

    def _rows(self, rows: Tensor) -> Tensor:
        return rows[self.examples, self.heads, self.queries].unsqueeze(-1)

    def _blocked(self) -> Tensor | None:
        call, device = self.call, self.scores.device
        blocked = None if call.allowed is None else ~self._part(call.allowed)
        column = torch.arange(self.keys.stop, device=device)
        if call.causal:
            future = column > torch.arange(self.queries.start, self.queries.stop, device=device).unsqueeze(-1)
            blocked = future if blocked is None else blocked | future
        if call.key_lengths is not None:
            padding = column >= call.key_lengths[self.examples].view(-1, 1, 1, 1)
            blocked = padding if blocked is None else blocked | padding
        return blocked

    def _fill(self, pairs: Tensor, value: float) -> Tensor:
        """In place."""
        return pairs if self.blocked is None else pairs.masked_fill_(self.blocked, value)

    def _masked(self, pairs: Tensor, value: float) -> Tensor:
        """Not in place."""
        return pairs if self.blocked is None else pairs.masked_fill(self.blocked, value)

    def _lowest(self) -> float:
        """In place of masked scores. If there may be infinities among the others, it is a number, as in `DenseRows`."""
        return float("-inf") if self.is_ordinary else torch.finfo(self.scores.dtype).min

    def normalised(self, logits: Tensor) -> Tensor:
        """The softmax of logits as of `logits`."""
        return self._fill(logits.softmax(-1), 0.0)

    def through_softmax(self, gradient: Tensor, weights: Tensor) -> Tensor:
        """A gradient of the weights as one of their logits, with NaN where plain torch has it: what is masked gets none."""
        gradient = self._fill(gradient, 0.0)
        return self._fill((gradient - (gradient * weights).sum(-1, keepdim=True)) * weights, 0.0)

    def _noise(self, first_example: int) -> CounterNoise:
        assert self.all_noise is not None
        return self.all_noise.starting(first_example + self.examples.start, self.heads.start, self.queries.start)

    def _log_concentration(self) -> Tensor:
        """Of Gamma draws; what is masked counts for nothing."""
        assert self.call.noise_scale is not None
        log_share = self._masked(self.scores, self._lowest()).log_softmax(-1)
        return (self._fill(log_share, 0.0) + self._rows(self.call.noise_scale)).clamp_min_(SMALLEST_LOG_CONCENTRATION)

    def logits(self, first_example: int, keep_noise: bool = False) -> tuple[Tensor, Tensor | None]:
        """The logarithms of weights that are not normalised, and if it is to be kept the noise they were drawn with.

        In place of a noise, Gamma draws have the derivative of their logarithm by that of the concentration."""
        noise, logits = None, self.scores
        if self.call.noise == "gamma":
            logits, noise = counter_gamma.draw(self._noise(first_example), self._log_concentration())
        elif self.call.noise != "none":
            assert self.call.noise_scale is not None
            source, scale = self._noise(first_example), self._rows(self.call.noise_scale)
            noise = source.normal(logits) if self.call.noise == "normal" else source.log_exponential(logits)
            logits = torch.addcmul(logits, noise, scale) if keep_noise else noise.mul_(scale).add_(logits)
        return self._masked(logits, self._lowest()), noise

    def weights(self, log_total: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights, and the noise they were drawn with, as of `logits`."""
        logits, noise = self.logits(0, keep_noise=True)
        # the logarithms of Gamma draws are large: their totals, rounded, would not normalise them
        if self.call.noise == "gamma" or not self.is_ordinary:
            return self.normalised(logits), noise
        # an empty row has NaN here, and every one of its pairs is blocked
        shares = logits - log_total if logits is self.scores else logits.sub_(log_total)
        return self._fill(shares.exp_(), 0.0), noise

    def dropped(self, weights: Tensor, first_example: int) -> Tensor:
        """Weights, or a gradient of weights, after dropout."""
        p = self.call.dropout_p
        if p == 0.0:
            return weights
        return weights * self._noise(first_example).kept(weights, p) / (1.0 - p)

    def _prior(self) -> tuple[Tensor, Tensor]:
        """Log shares, and prior logits, of every pair."""
        assert self.call.prior_logits is not None
        assert self.call.prior_total is not None
        logits = self.call.prior_logits[self.examples, self.heads, self.keys].unsqueeze(-2)
        if not self.is_ordinary:  # the totals do not tell a row of logits -inf from one without keys
            return self._masked(logits.expand_as(self.scores), self._lowest()).log_softmax(-1), logits
        return logits - self._rows(self.call.prior_total), logits

    def statistics(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Total, first, second and exponentials, as in `RowSums`."""
        call, total, exponentials = self.call, None, None
        if call.wants_total and not self.is_ordinary:
            total = self._masked(self.scores, self._lowest()).logsumexp(-1)
            # as a softmax has it: beside an infinite score every share is NaN, and not 0
            total = total.masked_fill_(total == float("inf"), float("nan"))
            if self.blocked is not None:
                total = total.masked_fill_(self.blocked.expand_as(self.scores).all(-1), 0.0)
        elif call.wants_total:
            shares, highest = _exponentials(self._masked(self.scores, float("-inf")))
            total = (shares.sum(-1, keepdim=True).log_() + highest).squeeze(-1)
            total = total.masked_fill_(total == float("-inf"), 0.0)
        if call.wants_exponentials:
            exponentials = self._sum(exp_with_linear_tail(self.scores))
        if call.statistics == "nothing":
            return total, None, None, exponentials
        if call.statistics == "sum":
            return total, self._sum(self.scores), None, exponentials
        if call.statistics == "gamma":
            log_q = self._log_concentration()
            divergence = gamma_kl(log_q, log_q.new_full((), call.log_concentration))
            return total, self._sum(divergence), self._sum(log_q.exp()), exponentials
        if call.statistics == "shares":
            log_share, _ = self._prior()
            log_alpha = log_share + call.log_concentration
            second = torch.lgamma(log_alpha.exp() + 1.0) - log_alpha
            return total, self._sum(log_share.exp() * self.scores), self._sum(second), exponentials
        difference = self._difference()
        return total, self._sum(difference), self._sum(difference.square()), exponentials

    def _sum(self, pairs: Tensor) -> Tensor:
        return self._masked(pairs, 0.0).sum(-1)

    def _difference(self) -> Tensor:
        """What "squares" and its kin square."""
        if self.call.statistics == "squares":
            return self.scores
        log_share, logits = self._prior()
        return self.scores - (logits if self.call.statistics == "squares_log" else log_share.exp())

    def add_gradient_of_concentration(self, gradient: Tensor, slope: Tensor | None, upstream: Tensor) -> Tensor:
        """Turns a gradient of the log weights into one of the scores, for Gamma draws and their KL; gives that of the log sharpness."""
        log_q = self._log_concentration()
        of_log_q = torch.zeros_like(gradient)
        if slope is not None:
            of_log_q += gradient * slope
            gradient.zero_()
        if self.call.statistics == "gamma":
            q, p = log_q.exp(), math.exp(self.call.log_concentration)
            ratio = (self.call.log_concentration - log_q).exp()
            of_log_q += upstream[1] * (1.0 + q * (q - p) * torch.polygamma(1, q + 1.0) - ratio) + upstream[2] * q
        of_log_q = self._fill(of_log_q.masked_fill_(log_q <= SMALLEST_LOG_CONCENTRATION, 0.0), 0.0)
        total = of_log_q.sum(-1, keepdim=True)
        share = self.normalised(self._masked(self.scores, self._lowest()))
        gradient += of_log_q - share * total
        return total.squeeze(-1)

    def add_gradient_of_statistics(self, gradient: Tensor, upstream: Tensor, total: Tensor) -> Tensor | None:
        """Adds to the gradient of the scores; gives the gradient of the log shares (of the prior logits for "squares_log")."""
        call, of_log_share = self.call, None
        of_total, of_first, of_second, of_exponentials = upstream
        # where nothing is masked there is nothing to keep apart
        extra = gradient if self.blocked is None else torch.zeros_like(gradient)
        if call.wants_total:
            extra.addcmul_((self.scores - total).exp_(), of_total)
        if call.wants_exponentials:
            extra.addcmul_(self.scores.clamp_max(60.0).exp_(), of_exponentials)
        if call.statistics == "sum":
            extra += of_first
        elif call.statistics == "shares":
            log_share, _ = self._prior()
            share, alpha = log_share.exp(), (log_share + call.log_concentration).exp()
            extra.addcmul_(share, of_first)
            of_log_share = of_first * share * self.scores + of_second * (alpha * torch.digamma(alpha + 1.0) - 1.0)
        elif call.statistics not in ("nothing", "gamma"):
            slope = of_first + 2.0 * of_second * self._difference()
            extra += slope
            if call.statistics == "squares_log":
                of_log_share = -slope
            elif call.statistics == "squares_share":
                of_log_share = -slope * self._prior()[0].exp()
        if self.blocked is not None:
            gradient += self._fill(extra, 0.0)
        return None if of_log_share is None else self._fill(of_log_share, 0.0)


def _exponentials(logits: Tensor, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """exp(logits - highest), and the highest logit of each row: 0 where there is none."""
    if logits.shape[-1] == 0:
        return logits, logits.new_zeros(*logits.shape[:-1], 1)
    highest = logits.amax(-1, keepdim=True)
    highest.masked_fill_(highest == float("-inf"), 0.0)
    return (logits.sub_(highest) if in_place else logits - highest).exp_(), highest


def _chunks(call: Call, *upstream: Tensor) -> Iterator[_Chunk]:
    """Parts of one example, of as many of its heads and queries as `CHUNK_ELEMENTS` allows; `upstream` are the results' gradients."""
    is_ordinary = call.is_ordinary(*upstream)
    batch, heads, queries, _ = call.query.shape
    keys = max(1, call.key.shape[2])
    elements = CHUNK_ELEMENTS if call.query.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    rows = max(1, min(queries, max(LEAST_QUERIES, elements // keys)))
    together = min(call.key.shape[1], max(1, elements // (keys * rows * call.groups))) * call.groups
    noise = None
    if call.seed is not None:
        noise = CounterNoise(call.seed, call.generator)  # pyright: ignore[reportArgumentType]
        noise.prepare(call.samples * batch, heads, queries, call.query.device)
    for example in range(batch):
        for head in range(0, heads, together):
            for start in range(0, queries, rows):
                yield _Chunk(
                    call,
                    noise,
                    slice(example, example + 1),
                    slice(head, min(head + together, heads)),
                    slice(start, min(start + rows, queries)),
                    is_ordinary,
                )
