"""A pretrained Hugging Face encoder with a head for sentences, whose lower layers may be frozen and run once for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Int, Shaped


class TextModel(nn.Module):
    """A sequence classifier of transformers, with its inputs as one tensor.

    The inputs are token ids, mask and token types, [batch, 3, length]. With `frozen_layers` the model begins after so many layers, and
    takes what `frozen(...)` gives: [batch, length, features], zeros where padded. Padding beyond a batch's longest text is cut off.
    Of BERT's last layer all of the attention is computed, and what comes after it for the first token alone: no head reads another.

    `dropout` is that of the encoder, and of the head too unless it has its own, `classifier_dropout`.

    With `regression` the output is a mean and a standard deviation, for targets from 0 to 5; else logits.
    """

    def __init__(
        self,
        path: str | Path,
        outputs: int,
        dropout: float,
        frozen_layers: int = 0,
        regression: bool = False,
        classifier_dropout: float | None = None,
    ):
        super().__init__()
        self.network: Any = transformers.AutoModelForSequenceClassification.from_pretrained(
            path,
            num_labels=outputs,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            ignore_mismatched_sizes=True,
            **_classifier_dropout(path, classifier_dropout),
        )
        self.frozen_layers = checks.whole("frozen_layers", frozen_layers, minimum=0)
        self.regression = regression
        if frozen_layers:
            body = _body(self.network, frozen_layers)
            body.encoder.layer = body.encoder.layer[frozen_layers:]
            body.embeddings = _AsTheyAre()
        if isinstance(self.network, transformers.BertForSequenceClassification):
            last: Any = self.network.bert.encoder.layer[-1].attention
            last.self.register_forward_hook(_first_of_output)
            last.output.register_forward_pre_hook(_first_of_inputs)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Any:
        if self.frozen_layers:
            mask = (inputs != 0).any(-1)
            length = _longest(mask)
            arguments = {"inputs_embeds": inputs[:, :length].float(), "attention_mask": mask[:, :length].long()}
        else:
            arguments = _arguments(inputs)
        logits = self.network(**arguments).logits
        if not self.regression:
            return logits
        mean, raw = logits.unbind(-1)
        return 2.5 + 1.5 * mean, F.softplus(1.5 * raw + 0.5) + 1e-2


def _classifier_dropout(path: str | Path, dropout: float | None) -> dict[str, float]:
    """Under the name that it has in the model's config: ALBERT's is another than BERT's."""
    if dropout is None:
        return {}
    config = transformers.AutoConfig.from_pretrained(path)
    return {"classifier_dropout_prob" if hasattr(config, "classifier_dropout_prob") else "classifier_dropout": dropout}


def frozen(
    path: str | Path, layers: int, tokens: Int[Tensor, "n 3 length"], batch: int = 64
) -> Float[Tensor, "n length features"]:
    """What the lowest `layers` layers of the pretrained encoder make of these texts, in float16, zeros where padded."""
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(path, num_labels=2)
    body = _body(model, layers).eval()
    body.encoder.layer = body.encoder.layer[:layers]
    parts = []
    with torch.no_grad():
        for part in tokens.split(batch):
            arguments = _arguments(part)
            hidden = body(**arguments).last_hidden_state * arguments["attention_mask"].unsqueeze(-1)
            parts.append(F.pad(hidden.half(), (0, 0, 0, tokens.shape[2] - hidden.shape[1])))
    return torch.cat(parts)


class _AsTheyAre(nn.Module):
    """In place of the embeddings: what is given is embedded already."""

    def forward(self, inputs_embeds: Tensor, **others: Any) -> Tensor:
        return inputs_embeds


def _first_of_output(module: nn.Module, inputs: Any, output: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    attended, weights = output
    return attended[:, :1], weights


def _first_of_inputs(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor[:, :1] for tensor in inputs)


def _body(network: Any, layers: int) -> Any:
    """The encoder below the head, if it is made as BERT is."""
    body = network.base_model
    stack = getattr(getattr(body, "encoder", None), "layer", None)
    if not isinstance(stack, nn.ModuleList) or not hasattr(body, "embeddings"):
        raise ValueError(
            f"frozen_layers={layers} needs an encoder made as BERT is (embeddings, encoder.layer), and {type(body).__name__} is not: "
            "set frozen_layers=0."
        )
    if not 0 < layers < len(stack):
        raise ValueError(f"frozen_layers={layers} must leave some of the {len(stack)} layers to train.")
    return body


def _arguments(inputs: Tensor) -> dict[str, Tensor]:
    length = _longest(inputs[:, 1] != 0)
    ids, mask, types = inputs[:, :, :length].unbind(1)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def _longest(mask: Tensor) -> int:
    return max(1, int(mask.sum(1).max()))
