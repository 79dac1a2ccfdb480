"""The contract of an objective: scores, a memory and a likelihood in, the loss of every target token out, its KL recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.mixture import CHUNK, ContextMixture, LogLikelihood
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors.rows import DenseRows
from bayesattn.scopes import modes, recording
from bayesattn.support.annotations import Bool, Float
from bayesattn.support.configurable import Configurable


class Alignment:
    """One batch of alignment problems: for each target token, which position of the memory does it come from?"""

    def __init__(
        self,
        likelihood: LogLikelihood,
        memory: Float[Tensor, "batch source features"],
        prior_scores: Float[Tensor, "batch target source"],
        posterior_scores: Float[Tensor, "batch target source"] | None,
        source_mask: Bool[Tensor, "batch source"] | None,
    ):
        self.likelihood = likelihood
        self.memory = without_padding(memory, source_mask)
        self.prior_scores = prior_scores
        self.posterior_scores = posterior_scores
        self.source_mask = source_mask
        # made here and not when first needed: that may be in the baseline, without gradients
        self.log_prior = categorical.log_weights(prior_scores, source_mask)
        self._log_posterior = (
            None if posterior_scores is None else categorical.log_weights(posterior_scores, source_mask)
        )

    @property
    def log_posterior(self) -> Float[Tensor, "batch target source"]:
        """log q(z = i)."""
        assert self._log_posterior is not None  # Objective.forward has said so
        return self._log_posterior

    def every(self, log_weights: Float[Tensor, "batch target source"], chunk: int) -> ContextMixture:
        """Every position of the memory, with its weight."""
        return ContextMixture(contexts.every(self.memory), log_weights.movedim(-1, 0), chunk)

    def log_likelihood(self, given: Float[Tensor, "choices batch #target _"]) -> Float[Tensor, "choices batch target"]:
        """log f of each context, in float32 or better."""
        values = to_compute(self.likelihood(given))
        expected = (given.shape[0], *self.prior_scores.shape[:2])
        if tuple(values.shape) != expected:
            raise ValueError(
                f"likelihood must turn contexts {tuple(given.shape)} into log probabilities of shape (choices, batch, target) = "
                f"{expected}; it returned {tuple(values.shape)}."
            )
        return values

    def soft_log_likelihood(self) -> Float[Tensor, "batch target"]:
        """log f(E_p z): soft attention."""
        soft = contexts.average(self.memory, self.log_prior.exp().unsqueeze(0))
        return self.log_likelihood(soft).squeeze(0)


class Objective(Configurable, nn.Module, ABC):
    """What to maximise for each target token, given the prior p(z), and for some also a posterior q(z), of its alignment z.

    Called with scores, memory and likelihood, it returns the loss of every target token, [batch, target], 0 at padding; its
    KL goes to the open `record()`, summed over the target tokens of each example. So one training loop serves all:

        with ba.record() as latents:
            loss = objective(likelihood, memory, prior_scores, posterior_scores)
        ba.elbo(loss, latents).backward()

    The loss's value is the (estimated) negative log-likelihood; terms that only carry a gradient have the value 0.
    In eval mode nothing is sampled: expectations are enumerated, or taken at the mean. `sampling()` samples in eval mode.

    An objective also says how the trained model predicts: `mixture(...)`.
    """

    needs_posterior: ClassVar[bool] = False
    """Whether it is trained with an inference network."""

    chunk: int = CHUNK
    """How many (choice, example, target token) the likelihood sees at once when alignments are enumerated."""

    def __init__(self) -> None:
        super().__init__()

    def forward(
        self,
        likelihood: LogLikelihood,
        memory: Float[Tensor, "batch source features"],
        prior_scores: Float[Tensor, "batch target source"],
        posterior_scores: Float[Tensor, "batch target source"] | None = None,
        *,
        source_mask: Bool[Tensor, "batch source"] | None = None,
        target_mask: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target"]:
        """The loss of every target token.

        Args:
            likelihood: contexts [choices, batch, target or 1, features] → log p(y | context), [choices, batch, target].
            memory: what is attended to.
            prior_scores: scores before the softmax, from what precedes the target token.
            posterior_scores: scores of the inference network, which sees the whole target.
            source_mask: [batch, source], False for padding. An example without any source gets a context of zeros.
            target_mask: [batch, target], False for padding: loss and KL are 0 there.
        """
        self._check(memory, prior_scores, posterior_scores, source_mask, target_mask)
        alignment = Alignment(likelihood, memory, prior_scores, posterior_scores, source_mask)
        loss, kl = self.loss(alignment)
        self._record(kl, prior_scores.shape, source_mask, target_mask)
        return loss if target_mask is None else loss.masked_fill(~target_mask, 0.0)

    @abstractmethod
    def loss(self, alignment: Alignment) -> tuple[Float[Tensor, "batch target"], Float[Tensor, "batch target"]]:
        """The negative log-likelihood (its gradient may be an estimator) and the KL of every target token."""

    def mixture(
        self,
        memory: Float[Tensor, "batch source features"],
        prior_scores: Float[Tensor, "batch target source"],
        *,
        source_mask: Bool[Tensor, "batch source"] | None = None,
        k_max: int | None = None,
    ) -> ContextMixture:
        """How the model predicts when the target is not known: here, exactly, log p(y) = log Σ_i p_i f(y | memory_i).

        `k_max` keeps the K most probable positions, renormalised, and costs K calls of the likelihood for each token.
        """
        memory = without_padding(memory, source_mask)
        log_prior = categorical.log_weights(prior_scores, source_mask)
        if k_max is None:
            return ContextMixture(contexts.every(memory), log_prior.movedim(-1, 0), self.chunk)
        largest = categorical.keep_largest(log_prior, k_max).topk(min(k_max, memory.shape[1]), -1)
        chosen = contexts.pick(memory, largest.indices.movedim(-1, 0))
        return ContextMixture(chosen, largest.values.movedim(-1, 0), self.chunk)

    @property
    def samples_now(self) -> bool:
        """Whether to draw (training, or a `sampling()` block) or not (eval)."""
        return self.training or modes.is_sampling()

    def _record(self, kl: Tensor, shape: torch.Size, source_mask: Tensor | None, target_mask: Tensor | None) -> None:
        allowed = None if source_mask is None else source_mask[:, None, None, :]
        rows = DenseRows((shape[0], 1, shape[1], shape[2]), allowed, target_mask)
        one = kl.new_ones(())
        tokens = rows.total_of_rows(one)
        recording.add_local(
            rows.total_of_rows(kl[:, None, :, None]),
            elements=rows.total_of_pairs(one),
            rows=tokens,
            tokens=tokens,
            source=self,
        )

    def _check(
        self,
        memory: Tensor,
        prior_scores: Tensor,
        posterior_scores: Tensor | None,
        source_mask: Tensor | None,
        target_mask: Tensor | None,
    ) -> None:
        if memory.dim() != 3 or prior_scores.dim() != 3:
            raise ValueError(
                f"memory must be [batch, source, features] and prior_scores [batch, target, source]; got {tuple(memory.shape)} "
                f"and {tuple(prior_scores.shape)}."
            )
        batch, target, source = prior_scores.shape
        if tuple(memory.shape[:2]) != (batch, source):
            raise ValueError(
                f"memory {tuple(memory.shape)} and prior_scores {tuple(prior_scores.shape)} must agree in batch and source."
            )
        if self.needs_posterior and posterior_scores is None:
            raise ValueError(
                f"{type(self).__name__} needs posterior_scores, got None: make them with an inference network such as "
                "ba.alignment.SequenceInference."
            )
        if posterior_scores is not None and not self.needs_posterior:
            raise ValueError(f"{type(self).__name__} has no use for posterior_scores: pass None.")
        if posterior_scores is not None and posterior_scores.shape != prior_scores.shape:
            raise ValueError(
                f"posterior_scores {tuple(posterior_scores.shape)} must have the shape of prior_scores {tuple(prior_scores.shape)}."
            )
        for name, mask, wanted in (
            ("source_mask", source_mask, (batch, source)),
            ("target_mask", target_mask, (batch, target)),
        ):
            if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != wanted):
                raise ValueError(
                    f"{name} must be boolean of shape {wanted}, False for padding; got {mask.dtype} of shape {tuple(mask.shape)}."
                )


def without_padding(memory: Tensor, source_mask: Tensor | None) -> Tensor:
    """The memory with zeros at padding, so that an example without any source has a context of zeros."""
    return memory if source_mask is None else memory.masked_fill(~source_mask.unsqueeze(-1), 0.0)
