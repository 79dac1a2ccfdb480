"""Autoencoding of sentences, as in the paper of NVAE: WikiText-2, and a small grammar that needs no files."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from bayesattn.experiments.data import wikitext2
from bayesattn.experiments.data.toy_sentences import toy_sentences
from bayesattn.experiments.data.wordpiece import PAD, Wordpieces, padded
from bayesattn.experiments.models.autoencoders.base import Autoencoder
from bayesattn.experiments.models.autoencoders.no_bottleneck import NoBottleneck
from bayesattn.experiments.models.trigram import Trigram
from bayesattn.experiments.tasks.autoencoding import Writer, generation, interpolation, reconstruction
from bayesattn.experiments.tasks.base import Evaluation, Examples, HasModels, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.support import checks

SHORTEST, LONGEST = 5, 50
"""Tokens of the sentences that are used, the end not counted."""

SHOWN = 10
"""Generated texts that are kept with a result."""


@dataclass(frozen=True)
class AutoencodingOptions:
    """The autoencoder, and how much is measured."""

    hidden: int = 256
    """Width of the transformer."""
    depth: int = 1
    """Layers of the encoder, and of the decoder."""
    heads: int = 1
    """Attention heads."""
    feedforward: int = 1024
    """Width of the inner layers."""
    vocabulary: int = 30_522
    """Most wordpieces (as many as BERT's, which the paper uses; ours are trained on the training part)."""
    test_sentences: int = 1000
    """Sentences that are written again."""
    pairs: int = 200
    """Pairs of sentences between which texts are written."""
    generated: int = 1000
    """Texts that are written from the prior."""


class AutoencodingTask(Task):
    """Sentences of 5 to 50 wordpieces. Evaluation writes with the point estimate, token by token, the most probable one each."""

    training = Training(epochs=3, samples=1, batch_size=128, learning_rate=1e-4)
    likelihood = "categorical"
    max_len = LONGEST + 1

    def __init__(self, options: AutoencodingOptions):
        for name in ("hidden", "depth", "heads", "feedforward", "vocabulary", "test_sentences", "pairs", "generated"):
            checks.whole(name, getattr(options, name))
        self.options = options

    @abstractmethod
    def sentences(self) -> tuple[Wordpieces, Splits]:
        """The wordpieces, and the sentences as padded tokens with their ends."""

    def load(self) -> Splits:
        return self.sentences()[1]

    def words(self) -> Wordpieces:
        """The wordpieces."""
        return self.sentences()[0]

    def build(self, dropout: float) -> nn.Module:
        options, words = self.options, self.words()
        return Autoencoder(
            len(words),
            LONGEST + 1,
            NoBottleneck(),
            dim=options.hidden,
            depth=options.depth,
            heads=options.heads,
            feedforward=options.feedforward,
            dropout=dropout,
            words=words.digest,
        )

    def lengths(self, train: Examples) -> Tensor:
        return (train[-1] != PAD).sum(1)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        tokens = batch[-1]
        return model(tokens[:, : int((tokens != PAD).sum(1).max())]).sum(1)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        writer = Writer(self._autoencoder(predict), self.words())
        tokens = splits.test[-1][: self.options.test_sentences].to(next(writer.model.parameters()).device)
        metrics, details = reconstruction(writer, tokens)
        language = Trigram(splits.train[-1], len(writer.words))
        metrics["test_perplexity"] = language.perplexity(tokens)
        between = tokens[: self.options.pairs]
        details["interpolation"] = interpolation(writer, between, between.flip(0), language)
        for at in details["interpolation"]:
            if at["tau"] == 0.5:
                metrics |= {f"halfway_{name}": at[name] for name in ("new", "perplexity")}
        if not isinstance(writer.model.bottleneck, NoBottleneck):
            lengths = (splits.train[-1][: self.options.generated] != PAD).sum(1)
            figures, texts = generation(writer, lengths, tokens, language)
            metrics |= figures
            details["generated"] = texts[:SHOWN]
        return Evaluation(metrics, details)

    def _autoencoder(self, predict: Predictor) -> Autoencoder:
        models = predict.models if isinstance(predict, HasModels) else []
        if len(models) != 1 or not isinstance(models[0], Autoencoder):
            raise ValueError(
                f"An autoencoding task is evaluated with the one autoencoder of a run, got {len(models)} models: "
                "use t, vt, vtp, vts or nvae."
            )
        return models[0]


class WikiTextTask(AutoencodingTask):
    """Sentences of WikiText-2 in lower case."""

    files = wikitext2.FILES

    def sentences(self) -> tuple[Wordpieces, Splits]:
        return _wikitext(self.options.vocabulary)


class ToyTextTask(AutoencodingTask):
    """1,000 sentences of a small grammar."""

    training = Training(epochs=20, samples=1, batch_size=32, learning_rate=3e-3)

    def sentences(self) -> tuple[Wordpieces, Splits]:
        return _toy(self.options.vocabulary)


@lru_cache(maxsize=1)
def _wikitext(vocabulary: int) -> tuple[Wordpieces, Splits]:
    return _encoded(*wikitext2.load_sentences(), vocabulary)


@lru_cache(maxsize=1)
def _toy(vocabulary: int) -> tuple[Wordpieces, Splits]:
    texts = toy_sentences(1200)
    return _encoded(texts[:1000], texts[1000:1100], texts[1100:], vocabulary)


def _encoded(train: list[str], valid: list[str], test: list[str], vocabulary: int) -> tuple[Wordpieces, Splits]:
    words = Wordpieces.trained(train, vocabulary)
    parts = []
    for texts in (train, valid, test):
        rows = [row for row in words.encode(texts) if SHORTEST <= len(row) <= LONGEST]
        # the order of the files is that of articles: mixed, so that the first sentences are of all of them
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
        parts.append((padded([rows[place] for place in order], LONGEST + 1),))
    return words, Splits(*parts)


TASKS.add("nvae-wikitext2", "autoencoding of WikiText-2's sentences", AutoencodingOptions(), WikiTextTask)
TASKS.add(
    "nvae-toy",
    "autoencoding of a small grammar's sentences",
    AutoencodingOptions(hidden=32, feedforward=64, vocabulary=120, test_sentences=100, pairs=20, generated=200),
    ToyTextTask,
)
