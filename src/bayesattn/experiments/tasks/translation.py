"""What the translation tasks share: subwords, the model of Deng et al., perplexity, BLEU and the entropy of alignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn

from bayesattn.alignment import Marginal, Objective, Soft
from bayesattn.experiments.data.parallel import ParallelFiles, ParallelText, read_parallel
from bayesattn.experiments.data.subwords import BEGIN, END, PAD, Subwords, padded, trimmed
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task
from bayesattn.experiments.tasks.batching import by_length
from bayesattn.experiments.tasks.translated import Translations
from bayesattn.posteriors import Posterior
from bayesattn.support import checks

SHOWN = 5
"""Translations that are kept with a result."""


@dataclass(frozen=True)
class TranslationOptions:
    """Subwords, the model's sizes, and how it is tested."""

    vocabulary: int = 4000
    """Subwords of each language, or of both together if joint."""
    joint: bool = False
    """Learn one set of subwords from both languages, as in the paper."""
    max_length: int = 50
    """Training pairs with more subwords on a side are left out."""
    limit_test: bool = False
    """Leave such pairs out of validation and test too: an easier test, for a small budget."""
    embedding_dim: int = 256
    """Width of the embeddings."""
    encoder_dim: int = 256
    """Units of the encoder in each direction."""
    decoder_dim: int = 256
    """Units of the decoder."""
    attention_dim: int = 256
    """Width of the attention's tanh layer."""
    inference_dim: int = 256
    """Units of the inference network in each direction."""
    layers: int = 1
    """Layers of every LSTM."""
    dropout: float = 0.3
    """Dropout of the base model."""
    beam: int = 10
    """Hypotheses of the beam search."""
    longest: int = 100
    """Most subwords of a translation."""
    length_penalty: float = 1.0
    """Exponent of the length penalty."""
    k_max: int = 5
    """K of the K-max figures."""
    validation_examples: int | None = None
    """Use the first so many validation pairs; None: all."""
    test_examples: int | None = None
    """Use the first so many test pairs; None: all."""
    most_k: int = added_later(0)
    """Also the perplexity as a latent mixture of the K = 1 … most_k most probable positions and of all, and that of soft attention,
    however the model was trained (the paper, table 2 right: 10); 0: none of these."""

    def __post_init__(self) -> None:
        checks.whole("max_length", self.max_length)
        checks.whole("beam", self.beam)
        checks.whole("longest", self.longest)
        checks.whole("k_max", self.k_max)
        checks.whole("most_k", self.most_k, minimum=0)
        for name in ("validation_examples", "test_examples"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name))


@dataclass(frozen=True)
class Corpus:
    """Subwords of both languages, the parts as token ids, and the test sentences as text."""

    source: Subwords
    target: Subwords
    splits: Splits
    test: ParallelText


class TranslationTask(Task):
    """Translate. Perplexity is that of a target subword (the end included), by the exact marginal and with K-max alignments."""

    likelihood = "categorical"
    point_estimate = True
    train_files: ParallelFiles | None = None
    validation_files: ParallelFiles | None = None
    test_files: ParallelFiles | None = None
    """Of corpora that come as two files for each part; another overrides `parts`."""
    bleu_tokenizer = "13a"
    """How sacrebleu splits the text of hypotheses and references; "none" for text that comes in words."""

    def __init__(self, options: TranslationOptions):
        self.options = options
        self.dropout = options.dropout
        self.files = tuple(file for part in self._pairs_of_files() for file in (part.source, part.target))

    def _pairs_of_files(self) -> list[ParallelFiles]:
        every = (self.train_files, self.validation_files, self.test_files)
        return [part for part in every if part is not None]

    def parts(self) -> tuple[ParallelText, ParallelText, ParallelText]:
        """The sentences that train, validate and test."""
        train, validation, test = (read_parallel(part) for part in self._pairs_of_files())
        return train, validation, test

    @cached_property
    def corpus(self) -> Corpus:
        """The data, made ready."""
        options = self.options
        train, validation, test = self.parts()
        if options.joint:
            source = target = Subwords.train([*train.source, *train.target], options.vocabulary)
        else:
            source = Subwords.train(train.source, options.vocabulary)
            target = Subwords.train(train.target, options.vocabulary)

        def encoded(text: ParallelText, limit: bool, count: int | None) -> tuple[Examples, ParallelText]:
            pairs = list(zip(source.encode(text.source), target.encode(text.target), strict=True))
            longest = options.max_length + 2  # beginning and end are not counted
            kept = [place for place, pair in enumerate(pairs) if not limit or max(map(len, pair)) <= longest][:count]
            if not kept:
                raise ValueError(
                    f"max_length={options.max_length} leaves none of {len(pairs)} pairs: take a larger one."
                )
            tensors = tuple(padded([pairs[place][side] for place in kept]) for side in (0, 1))
            return tensors, ParallelText([text.source[place] for place in kept], [text.target[place] for place in kept])

        train_part, _ = encoded(train, True, None)
        validation_part, _ = encoded(validation, options.limit_test, options.validation_examples)
        test_part, test = encoded(test, options.limit_test, options.test_examples)
        return Corpus(source, target, Splits(train_part, validation_part, test_part), test)

    def load(self) -> Splits:
        return self.corpus.splits

    def build(self, dropout: float) -> nn.Module:
        return self.build_with(Soft(), dropout)

    def build_with(self, attention: Posterior | Objective, dropout: float) -> nn.Module:
        options = self.options
        return Seq2Seq(
            len(self.corpus.source),
            len(self.corpus.target),
            attention,
            embedding_dim=options.embedding_dim,
            encoder_dim=options.encoder_dim,
            decoder_dim=options.decoder_dim,
            attention_dim=options.attention_dim,
            inference_dim=options.inference_dim,
            layers=options.layers,
            dropout=dropout or self.dropout,
            pad=PAD,
            bos=BEGIN,
            eos=END,
        )

    def batches(self, train: Examples, order: Tensor, size: int) -> Sequence[Tensor]:
        return by_length((train[-1] != PAD).sum(1), order, size)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        source, target = batch
        return model(trimmed(source), trimmed(target)).sum(1)

    def predict(
        self, model: nn.Module, inputs: Any, samples: int, dropout: bool = False, point_estimate: bool = False
    ) -> Translations:
        assert isinstance(model, Seq2Seq)
        return Translations(model, inputs)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        options, corpus = self.options, self.corpus
        source, target = splits.test
        translations = predict(source)
        assert isinstance(translations, Translations)
        metrics = {
            "perplexity": translations.perplexity(target),
            "perplexity_k_max": translations.perplexity(target, options.k_max),
            "prior_entropy": translations.prior_entropy(target),
        }
        if options.most_k:
            for k_max in (*range(1, options.most_k + 1), None):
                name = "perplexity_latent" if k_max is None else f"perplexity_latent_{k_max}"
                metrics[name] = translations.perplexity(target, k_max, Marginal())
            metrics["perplexity_soft"] = translations.perplexity(target, tested_as=Soft())
        scorer = BLEU(lowercase=True, tokenize=self.bleu_tokenizer)
        texts: list[str] = []
        for name, k_max in (("bleu_k_max", options.k_max), ("bleu", None)):
            found = translations.search(options.beam, options.longest, options.length_penalty, k_max)
            texts = corpus.target.decode(found)
            metrics[name] = scorer.corpus_score(texts, [corpus.test.target]).score
        shown = zip(corpus.test.source, corpus.test.target, texts, strict=True)
        details = {
            "bleu_signature": str(scorer.get_signature()),
            "training_pairs": len(splits.train[0]),
            "source_subwords": len(corpus.source),
            "target_subwords": len(corpus.target),
            "translations": [
                {"source": given, "reference": wanted, "translation": text}
                for given, wanted, text in list(shown)[:SHOWN]
            ],
        }
        return Evaluation(metrics, details)
