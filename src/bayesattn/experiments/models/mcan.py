"""MCAN, deep modular co-attention networks (Yu et al. 2019): the question attends to itself, the image to itself and to the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.attention import attend_scores
from bayesattn.experiments.models.question import QuestionEncoder
from bayesattn.nn import MultiheadAttention
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Shaped

Unit = Literal["question", "image", "guided", "reduction"]
UNITS: tuple[Unit, ...] = ("question", "image", "guided", "reduction")
"""Self-attention of the question, of the image, attention of the image to the question, and both attentional reductions."""


class AttentionUnit(nn.Module):
    """norm(x + dropout(attention from x to y)): SA with y = x, GA with the image for x and the question for y."""

    def __init__(self, dim: int, heads: int, dropout: float, posterior: Posterior):
        super().__init__()
        self.attention = MultiheadAttention(dim, heads, dropout=dropout, batch_first=True, posterior=posterior)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(
        self,
        x: Float[Tensor, "batch query dim"],
        y: Float[Tensor, "batch key dim"],
        x_padding: Bool[Tensor, "batch query"],
        y_padding: Bool[Tensor, "batch key"],
    ) -> Float[Tensor, "batch query dim"]:
        attended, _ = self.attention(
            x, y, y, key_padding_mask=y_padding, query_padding_mask=x_padding, need_weights=False
        )
        return self.norm(x + self.dropout(attended))


class FeedForwardUnit(nn.Module):
    """norm(x + dropout(W_2 dropout(relu(W_1 x))))."""

    def __init__(self, dim: int, inner: int, dropout: float):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(dim, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, dim), nn.Dropout(dropout)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        return self.norm(x + self.inner(x))


class AttentionalReduction(nn.Module):
    """Many vectors to one: their average, weighed by scores w · relu(W x + b), then a linear layer."""

    def __init__(self, dim: int, output: int, dropout: float, posterior: Posterior):
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(dim, 1)
        self.output = nn.Linear(dim, output)
        self.posterior = posterior.bind(num_heads=1, head_dim=dim)

    def forward(
        self, x: Float[Tensor, "batch length dim"], mask: Bool[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch output"], Float[Tensor, "batch length"]]:
        """The one vector, and the weights of the many."""
        hidden = self.dropout(F.relu(self.hidden(x)))
        scores = self.score(hidden).transpose(1, 2).unsqueeze(1)
        average, weights = attend_scores(
            scores, hidden.unsqueeze(1), x.unsqueeze(1), self.posterior, mask[:, None, None, :]
        )
        return self.output(average[:, 0, 0]), weights[:, 0, 0]


class MCAN(nn.Module):
    """Regions of an image and the words of a question → logits of answers.

    Encoder and decoder: `layers` times self-attention over the question, then `layers` times self-attention over the image and guided
    attention from the image to the encoded question. Both are reduced to one vector and fused: norm(W_x x + W_y y), linear.

    Args:
        words, answers: how many there are.
        region_dim: features of a region.
        posterior: distribution of the weights of every self- and guided-attention unit; or one for each kind of unit, by name
            ("question", "image", "guided", "reduction"), where units without one have softmax.
        dim, heads, layers, feedforward: of the transformer; the paper: 512, 8, 6, 2048.
        embedding_dim, fused_dim: of words, and of what is fused (the paper: 300, 1024).
        dropout: of every unit, also of its weights.
        pad: word number of padding, which comes last.

    >>> import torch, bayesattn as ba
    >>> model = MCAN(20, 5, region_dim=7, posterior=ba.Weibull(k=10.0), dim=8, heads=2, layers=1)
    >>> regions, mask = torch.randn(2, 4, 7), torch.ones(2, 4, dtype=torch.bool)
    >>> model(regions, mask, torch.tensor([[4, 5, 6], [7, 0, 0]])).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        words: int,
        answers: int,
        region_dim: int,
        posterior: Posterior | Mapping[Unit, Posterior] | None = None,
        *,
        dim: int = 512,
        heads: int = 8,
        layers: int = 6,
        feedforward: int | None = None,
        embedding_dim: int = 300,
        fused_dim: int | None = None,
        dropout: float = 0.1,
        pad: int = 0,
    ):
        super().__init__()
        sizes = {"answers": answers, "region_dim": region_dim, "dim": dim, "heads": heads, "layers": layers}
        for name, size in sizes.items():
            checks.whole(name, size)
        if dim % heads:
            raise ValueError(f"dim={dim} must be a multiple of heads={heads}.")
        checks.fraction("dropout", dropout)
        kinds = _posteriors(posterior)
        self.pad = pad
        self.question = QuestionEncoder(words, embedding_dim, dim, pad)
        self.regions = nn.Linear(region_dim, dim)

        def units(kind: Unit) -> nn.ModuleList:
            return nn.ModuleList(AttentionUnit(dim, heads, dropout, kinds[kind]) for _ in range(layers))

        def feedforwards() -> nn.ModuleList:
            return nn.ModuleList(FeedForwardUnit(dim, feedforward or 4 * dim, dropout) for _ in range(layers))

        self.question_attention, self.question_feedforward = units("question"), feedforwards()
        self.image_attention, self.guided_attention = units("image"), units("guided")
        self.image_feedforward = feedforwards()
        fused = fused_dim or 2 * dim
        self.question_reduction = AttentionalReduction(dim, fused, dropout, kinds["reduction"])
        self.image_reduction = AttentionalReduction(dim, fused, dropout, kinds["reduction"])
        self.fusion = nn.LayerNorm(fused)
        self.answers = nn.Linear(fused, answers)

    def forward(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        words: Shaped[Tensor, "batch length"],
    ) -> Float[Tensor, "batch answers"]:
        """Logits of the answers; `mask` is False for regions that are padding."""
        image, question, word_mask = self._attended(regions, mask, words)
        fused = self.image_reduction(image, mask)[0] + self.question_reduction(question, word_mask)[0]
        return self.answers(self.fusion(fused))

    def region_weights(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        words: Shaped[Tensor, "batch length"],
    ) -> Float[Tensor, "batch regions"]:
        """How much of each region goes into the answer: the weights of the image's reduction."""
        image, _, _ = self._attended(regions, mask, words)
        return self.image_reduction(image, mask)[1]

    def _attended(self, regions: Tensor, mask: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Image and question after all units, and which words are real."""
        word_mask = words != self.pad
        question, _ = self.question(words)
        for attention, feedforward in zip(self.question_attention, self.question_feedforward, strict=True):
            question = feedforward(attention(question, question, ~word_mask, ~word_mask))
        image = self.regions(regions)
        for attention, guided, feedforward in zip(
            self.image_attention, self.guided_attention, self.image_feedforward, strict=True
        ):
            image = attention(image, image, ~mask, ~mask)
            image = feedforward(guided(image, question, ~mask, ~word_mask))
        return image, question, word_mask


def _posteriors(posterior: Posterior | Mapping[Unit, Posterior] | None) -> dict[Unit, Posterior]:
    plain: dict[Unit, Posterior] = {unit: Softmax() for unit in UNITS}
    if posterior is None:
        return plain
    if isinstance(posterior, Posterior):
        return plain | dict.fromkeys(UNITS[:3], posterior)
    for name in posterior:
        checks.one_of("posterior", name, UNITS)
    return plain | dict(posterior)
