"""Part-of-speech tagging of UD English EWT, with the thesis's ambiguity test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.experiments.data import pos_ambiguity, ud_ewt
from bayesattn.experiments.data.pos_ambiguity import load_pos_ambiguity
from bayesattn.experiments.data.ud_ambiguity import mark_ambiguous
from bayesattn.experiments.data.ud_ewt import MAX_LEN, PAD, TAGS, load_ud_ewt
from bayesattn.experiments.models.tagger import Tagger
from bayesattn.experiments.tasks import portrait
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.classification import auroc, figures
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.support import checks
from bayesattn.weight_space.packing import packed_width

SHOWN = 5
"""Sentences of highest and of lowest entropy that are kept with a result."""
SHORTEST = 3
"""Words of the shortest of them, as in the thesis's tables 3.3, 3.4, 3.13 and 3.14."""


@dataclass(frozen=True)
class PosOptions:
    """The tagger, and whether the ambiguity test is made."""

    hidden: int = 32
    """Width of the transformer."""
    feedforward: int = 128
    """Width of its inner layer (not stated in the thesis)."""
    ambiguity: bool = True
    """Test on the 30 marked sentences too, which are not to be downloaded."""


class PosTask(Task):
    """Every position has a tag, padding too (X), as in the thesis; the figures without padding have names of their own."""

    training = Training(epochs=100, samples=10, learning_rate=3e-3)
    likelihood = "categorical"
    label_names = TAGS
    max_len = MAX_LEN
    weight_priors = "POS"

    def __init__(self, options: PosOptions):
        checks.whole("hidden", options.hidden)
        checks.whole("feedforward", options.feedforward)
        self.options = options
        self.files = (*ud_ewt.FILES, *((pos_ambiguity.FILE,) if options.ambiguity else ()))

    def load(self) -> Splits:
        if self.options.ambiguity:
            load_pos_ambiguity()  # missing or damaged: say so before the training, not after it
        _, train, dev, test = load_ud_ewt()
        return Splits((train.tokens, train.tags), (dev.tokens, dev.tags), (test.tokens, test.tags))

    def build(self, dropout: float) -> nn.Module:
        vocabulary, *_ = load_ud_ewt()
        return Tagger(
            len(vocabulary),
            len(TAGS),
            MAX_LEN,
            self.options.hidden,
            feedforward=self.options.feedforward,
            dropout=dropout,
        )

    def narrowed(self, members: int) -> PosTask:
        options = self.options
        hidden = packed_width(options.hidden, members)
        feedforward = max(1, round(options.feedforward * hidden / options.hidden))
        return PosTask(replace(options, hidden=hidden, feedforward=feedforward))

    def counted(self, inputs: Tensor) -> Tensor:
        return inputs != PAD

    def portraits(self, inputs: Tensor) -> list[portrait.Portrait]:
        vocabulary, *_ = load_ud_ewt()
        return [portrait.words([vocabulary.names[token] for token in row.tolist() if token != PAD]) for row in inputs]

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        tokens, tags = batch
        return F.cross_entropy(model(tokens).transpose(1, 2), tags, reduction="none").sum(1)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        tokens, tags = splits.test
        prediction = predict(tokens)
        assert isinstance(prediction, CategoricalPrediction)
        log_prob, probabilities, words = prediction.log_prob(tags), prediction.mean, tokens != PAD
        found = {"log_likelihood": log_prob.sum(1).mean().item()} | figures(probabilities.flatten(0, 1), tags.flatten())
        unpadded = {"log_likelihood": (log_prob * words).sum(1).mean().item()}
        unpadded |= figures(probabilities[words], tags[words])
        found |= {f"{name}_without_padding": value for name, value in unpadded.items()}
        entropy = _mean_entropy(prediction, words)
        found |= _ambiguity_in_the_treebank(prediction.entropy, entropy, tokens)
        details = self._extremes(entropy)
        if self.options.ambiguity:
            found |= _ambiguity(predict)
        return Evaluation(found, details)

    def _extremes(self, entropy: Tensor) -> dict[str, Any]:
        """The test sentences of at least SHORTEST words with the highest and the lowest mean entropy, as written and as seen."""
        _, _, _, test = load_ud_ewt()
        seen = [" ".join(portrait.names) for portrait in self.portraits(test.tokens)]
        order = [p for p in entropy.argsort(descending=True).tolist() if len(test.words[p]) >= SHORTEST]

        def shown(places: list[int]) -> list[dict[str, Any]]:
            return [
                {"entropy": round(entropy[p].item(), 4), "sentence": " ".join(test.words[p]), "tokens": seen[p]}
                for p in places
            ]

        return {"highest_entropy": shown(order[:SHOWN]), "lowest_entropy": shown(order[::-1][:SHOWN])}


def _mean_entropy(prediction: CategoricalPrediction, words: Tensor) -> Tensor:
    """The predictive entropy of each sentence, its mean over words."""
    return (prediction.entropy * words).sum(1) / words.sum(1)


def _ambiguity(predict: Predictor) -> dict[str, float]:
    """How well the mean entropy tells ambiguous sentences: AUROC, and the accuracy of the best single threshold."""
    from sklearn.tree import DecisionTreeClassifier  # takes a second

    sentences = load_pos_ambiguity()
    vocabulary, *_ = load_ud_ewt()
    tokens = vocabulary.encode([[vocabulary.lemma(word) for word in sentence.words] for sentence in sentences])
    entropy = _mean_entropy(predict(tokens), tokens != PAD)
    marks = torch.tensor([sentence.ambiguous for sentence in sentences])
    features = entropy.unsqueeze(1).numpy()
    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(features, marks.numpy())
    return {
        "ambiguity_auroc": auroc(entropy[~marks], entropy[marks]),
        "ambiguity_accuracy": float(tree.score(features, marks.numpy())),
    }


def _ambiguity_in_the_treebank(of_words: Tensor, of_sentences: Tensor, tokens: Tensor) -> dict[str, float]:
    """The AUROC of the mean entropy of test sentences whose words have two tags in training against the others, and of the entropy
    of such words against the others; nothing if one of the two is not there."""
    marks = mark_ambiguous(tokens, load_ud_ewt()[1])
    sentences = marks.ambiguous.any(1)[marks.chosen]
    words = marks.ambiguous[marks.chosen][tokens[marks.chosen] != PAD]
    if sentences.all() or not sentences.any():
        return {}
    of_sentences, of_words = of_sentences[marks.chosen], of_words[marks.chosen][tokens[marks.chosen] != PAD]
    return {
        "treebank_ambiguity_auroc": auroc(of_sentences[~sentences], of_sentences[sentences]),
        "treebank_ambiguity_word_auroc": auroc(of_words[~words], of_words[words]),
    }


TASKS.add("pos", "part-of-speech tagging of UD English EWT; ambiguity test", PosOptions(), PosTask)
