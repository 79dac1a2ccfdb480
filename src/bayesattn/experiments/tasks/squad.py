"""SQuAD 1.1 and 2.0 with a pretrained encoder (BAM, table 5): mark the answer in a paragraph, or say that it has none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.experiments.data.pretrained import minilm
from bayesattn.experiments.data.published import path_of
from bayesattn.experiments.data.squad import SpanQuestion, read_squad, squad_files
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.glue import MINILM
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.span_scores import exact_match, f1
from bayesattn.support import checks
from bayesattn.support.annotations import Float

LONGEST_ANSWER = 30
"""Tokens of an answer, as in BERT's own code."""
HELD_OUT = 500
"""Most training windows that validate and are not trained on: SQuAD's dev questions are the test."""


@dataclass(frozen=True)
class SquadOptions:
    """The pretrained encoder, and how contexts are cut."""

    data: str = "squad"
    """Folder of the published files, or its name below $BAYESATTN_DATA: train-v1.1.json and dev-v1.1.json, or those of v2.0."""
    model: str = MINILM
    """all-MiniLM-L6-v2 from the package registry, or what `from_pretrained` of transformers takes: a folder, a name on the Hub."""
    max_length: int = 384
    """Tokens of question and context; a longer context is cut into windows."""
    stride: int = 128
    """Tokens that a window shares with the one before."""
    dropout: float = 0.1
    """Dropout of the encoder in training, unless the method has a dropout of its own."""
    head_dropout: float = 0.1
    """Dropout before the head."""

    def __post_init__(self) -> None:
        checks.whole("stride", self.stride)
        if checks.whole("max_length", self.max_length) <= 2 * self.stride:
            raise ValueError(
                f"max_length={self.max_length} must be more than twice stride={self.stride}: windows would not come forward."
            )
        for name in ("dropout", "head_dropout"):
            checks.fraction(name, getattr(self, name))


@dataclass(frozen=True)
class Windows:
    """Contexts as windows of tokens."""

    inputs: Tensor
    """Token ids, mask and token types, [windows, 3, length]."""
    spans: Tensor
    """First and last token of the first answer, [windows, 2]; the first token of all, twice, where the window does not have it."""
    question: list[int]
    """Which question each is of."""
    places: list[list[tuple[int, int] | None]]
    """The characters that each token stands for; None where it is not of the context."""


class SquadTask(Task):
    """The first and the last token of an answer are two choices among the tokens; the first token of all stands for no answer."""

    likelihood = "categorical"
    training = Training(epochs=2, samples=10, batch_size=48, learning_rate=5e-5)

    def __init__(self, options: SquadOptions, version: str):
        self.options = options
        self.dropout = options.dropout
        self.version = version
        self.files = squad_files(options.data, version)

    @cached_property
    def asked(self) -> list[SpanQuestion]:
        """The test questions."""
        return read_squad(path_of(self.files[1]))

    @cached_property
    def tested(self) -> Windows:
        """Their windows."""
        return self._windows(self.asked)

    def load(self) -> Splits:
        windows = self._windows(read_squad(path_of(self.files[0])))
        order = torch.randperm(len(windows.question), generator=torch.Generator().manual_seed(0))
        held = order[: min(HELD_OUT, len(order) // 10)]
        rest = order[len(held) :]
        return Splits(
            (windows.inputs[rest], windows.spans[rest]),
            (windows.inputs[held], windows.spans[held]),
            (self.tested.inputs, self.tested.spans),
        )

    def build(self, dropout: float) -> nn.Module:
        from bayesattn.experiments.models.span import SpanModel

        return SpanModel(self._path(), dropout or self.dropout, self.options.head_dropout)

    def lengths(self, train: Examples) -> Tensor:
        return train[0][:, 1].sum(1)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        inputs, spans = batch
        return F.cross_entropy(model(inputs).transpose(1, 2), spans, reduction="none").sum(1)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        inputs, spans = splits.test
        point, sampled = predict(inputs, point_estimate=True), predict(inputs)
        found: dict[str, float] = {"nll": -sampled.log_prob(spans).sum(-1).mean().item()}
        for suffix, prediction in (("_of_point_estimate", point), ("", sampled)):
            said = self.answers(prediction.mean)
            for name, score in (("exact_match", exact_match), ("f1", f1)):
                values = [score(answer, asked.answers) for answer, asked in zip(said, self.asked, strict=True)]
                found[f"{name}{suffix}"] = sum(values) / len(values)
        return Evaluation(found, {"questions": len(self.asked), "windows": len(inputs)})

    def answers(self, probabilities: Float[Tensor, "windows 2 length"]) -> list[str]:
        """What is said to each test question: the likeliest span of all its windows, or "" where no answer is likelier (2.0 alone)."""
        best: list[tuple[float, str]] = [(float("-inf"), "")] * len(self.asked)
        nothing = [float("inf")] * len(self.asked)
        scores = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log().cpu()
        for of_window, number, places in zip(scores, self.tested.question, self.tested.places, strict=True):
            nothing[number] = min(nothing[number], float(of_window[:, 0].sum()))
            value, span = likeliest_span(of_window, [place is not None for place in places])
            if span is not None and value > best[number][0]:
                first, last = places[span[0]], places[span[1]]
                assert first is not None
                assert last is not None
                best[number] = (value, self.asked[number].context[first[0] : last[1]])
        may_be_nothing = self.version == "2.0"
        return [
            "" if may_be_nothing and none > value else said for (value, said), none in zip(best, nothing, strict=True)
        ]

    def _path(self) -> str:
        return str(minilm()) if self.options.model == MINILM else self.options.model

    def _windows(self, questions: list[SpanQuestion]) -> Windows:
        import transformers

        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(self._path())
        encoded = tokenizer(
            [question.text.strip() for question in questions],
            [question.context for question in questions],
            truncation="only_second",
            max_length=self.options.max_length,
            stride=self.options.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            padding="longest",
        )
        places = [
            [
                tuple(place) if part == 1 else None
                for place, part in zip(offsets, encoded.sequence_ids(window), strict=True)
            ]
            for window, offsets in enumerate(encoded["offset_mapping"])
        ]
        numbers = list(encoded["overflow_to_sample_mapping"])
        spans = [_tokens_of_answer(questions[number], at) for number, at in zip(numbers, places, strict=True)]
        parts = [torch.tensor(encoded[name]) for name in ("input_ids", "attention_mask", "token_type_ids")]
        return Windows(torch.stack(parts, 1), torch.tensor(spans), numbers, places)


def likeliest_span(
    scores: Float[Tensor, "2 length"], allowed: list[bool], longest: int = LONGEST_ANSWER
) -> tuple[float, tuple[int, int] | None]:
    """The first and last token with the largest sum of scores, the last not before the first and at most `longest` tokens in all."""
    length = len(allowed)
    lowest = torch.finfo(scores.dtype).min
    blocked = ~torch.tensor(allowed)
    first, last = scores.double().masked_fill(blocked, lowest)
    both = first.unsqueeze(1) + last
    order = torch.ones(length, length, dtype=torch.bool)
    both = both.masked_fill(~(order.triu() & order.tril(longest - 1)) | blocked | blocked.unsqueeze(1), float("-inf"))
    value, place = both.flatten().max(0)
    if value == float("-inf"):
        return float("-inf"), None
    return value.item(), (int(place) // length, int(place) % length)


def _tokens_of_answer(question: SpanQuestion, places: list[tuple[int, int] | None]) -> tuple[int, int]:
    """Of the first answer, where the window has all of it."""
    if not question.answers:
        return 0, 0
    begin = question.starts[0]
    end = begin + len(question.answers[0])
    inside = [
        number for number, place in enumerate(places) if place is not None and place[0] < end and place[1] > begin
    ]
    if not inside:
        return 0, 0
    first, last = places[inside[0]], places[inside[-1]]
    assert first is not None
    assert last is not None
    return (inside[0], inside[-1]) if first[0] <= begin and last[1] >= end else (0, 0)


for _version, _words in (("1.1", "mark the answer in a paragraph"), ("2.0", "the same, or say that there is none")):
    TASKS.add(
        f"squad{_version}",
        f"SQuAD {_version} from its published files (--data): {_words}",
        SquadOptions(),
        partial(SquadTask, version=_version),
    )
