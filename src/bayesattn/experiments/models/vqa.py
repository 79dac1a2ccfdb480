"""Bottom-up attention for visual questions, as Deng et al. 2018 use it: one attention over regions, which may be latent."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.alignment import ContextMixture, Objective, SetInference, Soft, log_weights
from bayesattn.alignment.mixture import LogLikelihood
from bayesattn.attention import attend_scores
from bayesattn.experiments.models.question import QuestionEncoder
from bayesattn.experiments.models.stepwise import contextual_shares, stepwise_posterior
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Posterior
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int, Shaped

Fusion = Literal["concatenation", "product"]
"""How the attended region and the question are put together."""


class BottomUpVQA(nn.Module):
    """Regions of an image and the words of a question → answers, by any objective of latent alignment or any posterior.

        query = last state of an LSTM over the question
        p(z = i) = softmax_i(w · tanh(W_1 x_i + W_2 query + b))
        p(y | z) = softmax(W dropout(relu(V [x_z, query] + c)))
        q(z = i | y) as `ba.alignment.SetInference`, from regions, query and an embedding of the answer

    The likelihood is the paper's (appendix B): "the selected image region is concatenated with the question embedding and fed to a
    one-layer MLP with ReLU non-linearity and 1024 hidden units", with "dropout rate of 0.5 on the penultimate layer (i.e. before
    affine transformation into answer vocabulary)". `fusion="product"` is relu(W_q query) * relu(W_x x_z) as in Anderson et al. 2018,
    without their gates, with dropout of the query too.

    Args:
        words, answers: how many there are.
        region_dim: features of a region.
        attention: an objective of `ba.alignment` (`Soft()` by default), which gets an inference network if it needs one; or a
            posterior such as `ba.Weibull(...)`. An objective may be replaced between epochs: `model.objective = ...`.
        embedding_dim, question_dim, hidden_dim, answer_dim: of words, of the LSTM, of the tanh and ReLU layers, of the answers that
            the inference network sees (the paper: 300, 1024, 1024, 256).
        fusion: "concatenation" (the paper) or "product".
        dropout: before the output layer; of the query too with fusion="product".
        pad: word number of padding, which comes last.

    >>> import torch, bayesattn as ba
    >>> model = BottomUpVQA(
    ...     20, 5, region_dim=7, attention=ba.alignment.Variational(samples=1), question_dim=8, hidden_dim=8
    ... )
    >>> regions, mask, words = torch.randn(2, 4, 7), torch.ones(2, 4, dtype=torch.bool), torch.tensor([[4, 5], [6, 0]])
    >>> with ba.record() as latents:
    ...     loss = model(regions, mask, words, torch.tensor([0, 3]))
    >>> ba.elbo(loss, latents).backward()
    >>> model(regions, mask, words).exp().sum(-1).allclose(torch.ones(2))
    True
    """

    def __init__(
        self,
        words: int,
        answers: int,
        region_dim: int,
        attention: Objective | Posterior | None = None,
        *,
        embedding_dim: int = 300,
        question_dim: int = 1024,
        hidden_dim: int = 1024,
        answer_dim: int = 256,
        fusion: Fusion = "concatenation",
        dropout: float = 0.5,
        pad: int = 0,
    ):
        super().__init__()
        sizes = {"answers": answers, "region_dim": region_dim, "hidden_dim": hidden_dim, "answer_dim": answer_dim}
        for name, size in sizes.items():
            checks.whole(name, size)
        checks.fraction("dropout", dropout)
        self.fusion: Fusion = checks.one_of("fusion", fusion, ("concatenation", "product"))
        attention = Soft() if attention is None else attention
        self.objective = attention if isinstance(attention, Objective) else None
        self.question = QuestionEncoder(words, embedding_dim, question_dim, pad)
        self.dropout = nn.Dropout(dropout)
        self.key_projection = nn.Linear(region_dim, hidden_dim)
        self.query_projection = nn.Linear(question_dim, hidden_dim, bias=False)
        self.score = nn.Linear(hidden_dim, 1, bias=False)
        self.posterior = stepwise_posterior(attention).bind(num_heads=1, head_dim=hidden_dim)
        self.query_readout = nn.Linear(question_dim, hidden_dim)
        # V [x, query] + c, in two parts: that of the query is computed once for all regions
        self.context_readout = nn.Linear(region_dim, hidden_dim, bias=fusion == "product")
        self.answers = nn.Linear(hidden_dim, answers)
        self.inference = self.answer_embedding = None
        if self.objective is not None and self.objective.needs_posterior:
            self.answer_embedding = nn.Embedding(answers, answer_dim)
            self.inference = SetInference(region_dim, question_dim, answer_dim, hidden_dim)

    def forward(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        words: Shaped[Tensor, "batch length"],
        answer: Int[Tensor, " batch"] | None = None,
        *,
        k_max: int | None = None,
        tested_as: Objective | None = None,
    ) -> Tensor:
        """The loss of the answer, [batch], its KL recorded; without one, the log probabilities of all answers, [batch, answers].

        `mask` is False for regions that are padding. Log probabilities are those of the prediction: no answer, no inference
        network; for categorical alignments the exact marginal, or that of the `k_max` most probable regions. `tested_as` predicts as
        another objective does, however the model was trained: `Marginal()` as the latent mixture, `Soft()` with one average.
        """
        query, keys, scores = self._prior(regions, words)
        predicting = tested_as or self.objective
        if answer is None and predicting is not None:
            mixture: ContextMixture = predicting.mixture(regions, scores, source_mask=mask, k_max=k_max)
            return mixture.log_probability(lambda contexts: self._log_probabilities(query, contexts))[:, 0]
        if self.objective is None:
            context, _ = attend_scores(
                scores.unsqueeze(1),
                keys.unsqueeze(1),
                regions.unsqueeze(1),
                self.posterior,
                mask[:, None, None, :],
            )
            found = self._log_probabilities(query, context[:, 0].unsqueeze(0))[0, :, 0]
            return found if answer is None else F.nll_loss(found, answer, reduction="none")
        assert answer is not None  # an objective's prediction has been returned
        posterior_scores = None
        if self.objective.needs_posterior:
            posterior_scores = self._infer(regions, query, answer)
        likelihood = self._likelihood(query, answer)
        return self.objective(likelihood, regions, scores, posterior_scores, source_mask=mask).squeeze(1)

    def alignments(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        words: Shaped[Tensor, "batch length"],
        answer: Int[Tensor, " batch"],
    ) -> tuple[Float[Tensor, "batch regions"], Float[Tensor, "batch regions"] | None]:
        """The weights of the regions before the answer is known and, if there is an inference network, given the answer."""
        query, _, scores = self._prior(regions, words)
        prior = log_weights(scores, mask).exp().squeeze(1)
        if self.inference is None:
            return prior, None
        return prior, log_weights(self._infer(regions, query, answer), mask).exp().squeeze(1)

    def region_weights(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        words: Shaped[Tensor, "batch length"],
    ) -> Float[Tensor, "batch regions"]:
        """The weights of the regions, drawn from the posterior or its point estimate; of an objective, the prior."""
        _, keys, scores = self._prior(regions, words)
        _, weights = attend_scores(
            scores.unsqueeze(1), keys.unsqueeze(1), regions.unsqueeze(1), self.posterior, mask[:, None, None, :]
        )
        return weights[:, 0, 0]

    def prior_weights(
        self, regions: Float[Tensor, "batch regions features"], mask: Bool[Tensor, "batch regions"]
    ) -> Float[Tensor, "batch regions"] | None:
        """What a contextual prior gives each region, whatever the question; None without such a prior."""
        return contextual_shares(self.posterior, self.key_projection(regions), mask)

    def _prior(self, regions: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query [batch, 1, question], keys [batch, regions, hidden] and scores [batch, 1, regions]."""
        _, last = self.question(words)
        query = (self.dropout(last) if self.fusion == "product" else last).unsqueeze(1)
        keys = self.key_projection(regions)
        scores = self.score(torch.tanh(keys + self.query_projection(query))).transpose(1, 2)
        return query, keys, scores

    def _infer(self, regions: Tensor, query: Tensor, answer: Tensor) -> Tensor:
        if self.inference is None or self.answer_embedding is None:
            raise ValueError(
                f"{type(self.objective).__name__} needs an inference network, and this model was made without one: "
                "make it with an objective that has needs_posterior, then replace model.objective."
            )
        return self.inference(regions, query, self.answer_embedding(answer).unsqueeze(1))

    def _log_probabilities(
        self, query: Float[Tensor, "batch 1 question"], contexts: Float[Tensor, "choices batch 1 features"]
    ) -> Float[Tensor, "choices batch 1 answers"]:
        """log p of every answer, given what was attended to."""
        of_query, of_context = self.query_readout(query), self.context_readout(contexts)
        joint = F.relu(of_query) * F.relu(of_context) if self.fusion == "product" else F.relu(of_query + of_context)
        return to_compute(self.answers(self.dropout(joint))).log_softmax(-1)

    def _likelihood(self, query: Tensor, answer: Tensor) -> LogLikelihood:
        def likelihood(contexts: Float[Tensor, "choices batch 1 features"]) -> Float[Tensor, "choices batch 1"]:
            every = self._log_probabilities(query, contexts)
            return every.gather(-1, answer.view(1, -1, 1, 1).expand(len(contexts), -1, 1, 1)).squeeze(-1)

        return likelihood
