"""Text generation that says, token by token, how sure the model is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.scopes.modes import DrawsOnce
from bayesattn.scopes.modes import sampling as sampling_attention
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int
from bayesattn.support.replica import in_eval_mode


@dataclass(frozen=True)
class Generation:
    """Generated tokens and what the samples say about each: all [batch, new tokens].

    `mask` is False after the end of a text; the numbers there are 0.
    """

    sequences: Int[Tensor, "batch length"]
    tokens: Int[Tensor, "batch new"]
    mask: Bool[Tensor, "batch new"]
    log_prob: Float[Tensor, "batch new"]
    """log of the predictive probability of the chosen token."""
    entropy: Float[Tensor, "batch new"]
    """Entropy of the predictive distribution: all that is uncertain."""
    mutual_information: Float[Tensor, "batch new"]
    """What knowing the attention would tell: how much the samples disagree."""

    @property
    def expected_entropy(self) -> Float[Tensor, "batch new"]:
        """What stays uncertain when the attention is known."""
        return self.entropy - self.mutual_information


def generate(
    model: nn.Module,
    *,
    samples: int = 8,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    **inputs: Any,
) -> Generation:
    """Generate with a converted Hugging Face model: at every step, `samples` draws of the attention vote on one next token.

    The samples are copies in the batch, each with its own cache and noise. Their mean is the predictive distribution of the next
    token; the most probable token is taken (or one is drawn), and all copies go on with it.

    Args:
        model: a model with transformers' `generate`, decoder or encoder-decoder.
        samples: how many.
        do_sample: draw the token from the predictive distribution instead of taking the most probable one.
        temperature, top_k, top_p: change the distribution that is drawn from, as in transformers; the reported numbers are of the
            distribution before that.
        generator: where the attention's noise comes from.
        inputs: what `model.generate` takes: input_ids, attention_mask, max_new_tokens, … Tensors that have the batch first are copied.

    >>> import transformers, torch, bayesattn as ba
    >>> config = transformers.LlamaConfig(
    ...     vocab_size=50,
    ...     hidden_size=16,
    ...     num_hidden_layers=1,
    ...     num_attention_heads=2,
    ...     intermediate_size=16,
    ...     eos_token_id=None,
    ... )
    >>> model = ba.convert(transformers.LlamaForCausalLM(config), ba.Weibull(k=5.0))
    >>> generation = ba.generate(model, input_ids=torch.tensor([[3, 4, 5]]), samples=4, max_new_tokens=6)
    >>> generation.tokens.shape, generation.mutual_information.shape
    (torch.Size([1, 6]), torch.Size([1, 6]))
    """
    checks.whole("samples", samples)
    if not callable(getattr(model, "generate", None)):
        raise TypeError(
            f"{type(model).__name__} has no generate(): ba.generate needs a Hugging Face model that generates."
        )
    num_beams = inputs.pop("num_beams", 1)
    if num_beams != 1:
        raise ValueError(f"num_beams={num_beams} is not supported: ba.generate follows one text, num_beams=1.")
    if any(isinstance(module, DrawsOnce) for module in model.modules()):
        raise ValueError(
            "ba.generate draws attention weights, a sample in each row of the batch; this model has random network weights, "
            "which all rows share: use ba.predict."
        )
    batch = _batch_size(inputs)
    folded = {name: _fold(argument, batch, samples) for name, argument in inputs.items()}
    vote = _Vote(samples, do_sample, _warpers(temperature, top_k, top_p) if do_sample else [])
    processors = [*folded.pop("logits_processor", []), vote]
    writer: Any = in_eval_mode(model)
    with torch.no_grad(), sampling_attention(generator):
        result: Any = writer.generate(
            **folded,
            logits_processor=_processor_list(processors),
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=True,
        )
    sequences = result.sequences[:batch]
    return vote.summary(sequences, _end_tokens(model, inputs))


class _Vote:
    """A logits processor: sees the samples' scores at each step, keeps what they say, and gives all of them one distribution."""

    def __init__(self, samples: int, do_sample: bool, warpers: list[Any]):
        self.samples = samples
        self.do_sample = do_sample
        self.warpers = warpers
        self.means: list[Tensor] = []
        self.entropies: list[Tensor] = []
        self.information: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        log_each = scores.float().log_softmax(-1).unflatten(0, (self.samples, -1))
        log_mean = log_each.logsumexp(0) - torch.tensor(float(self.samples)).log()
        probabilities = log_each.exp()
        chosen = log_mean
        if self.do_sample:
            warped = log_mean
            for warper in self.warpers:
                warped = warper(input_ids[: len(log_mean)], warped)
            drawn = torch.multinomial(warped.softmax(-1), 1)
            chosen = torch.full_like(log_mean, -torch.inf).scatter(1, drawn, 0.0)
        token = chosen.argmax(-1, keepdim=True)
        self.means.append(log_mean.gather(1, token).squeeze(1))
        self.entropies.append(metrics.predictive_entropy(probabilities))
        self.information.append(metrics.mutual_information(probabilities))
        return chosen.repeat(self.samples, 1).to(scores.dtype)

    def summary(self, sequences: Tensor, end_tokens: list[int]) -> Generation:
        new = len(self.entropies)
        tokens = sequences[:, -new:]
        ended = torch.isin(tokens, torch.tensor(end_tokens, device=tokens.device, dtype=tokens.dtype))
        mask = (ended.cumsum(1) - ended.long()) == 0
        log_prob, entropy, information = (
            torch.stack(steps, 1) * mask for steps in (self.means, self.entropies, self.information)
        )
        return Generation(sequences, tokens, mask, log_prob, entropy, information)


def _batch_size(inputs: dict[str, Any]) -> int:
    for name in ("input_ids", "inputs", "inputs_embeds"):
        if isinstance(inputs.get(name), Tensor):
            return inputs[name].shape[0]
    raise ValueError(
        "ba.generate needs the text to go on from: pass input_ids=, or **tokenizer(text, return_tensors='pt')."
    )


def _fold(argument: Any, batch: int, samples: int) -> Any:
    if isinstance(argument, Tensor) and argument.dim() and argument.shape[0] == batch:
        return torch.cat([argument] * samples)
    return argument


def _end_tokens(model: Any, inputs: dict[str, Any]) -> list[int]:
    config = inputs.get("generation_config") or model.generation_config
    given = inputs.get("eos_token_id", config.eos_token_id)
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [int(given)]


def _processor_list(processors: list[Any]) -> Any:
    from transformers import LogitsProcessorList

    return LogitsProcessorList(processors)


def _warpers(temperature: float, top_k: int | None, top_p: float | None) -> list[Any]:
    """transformers' own."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(temperature))]
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None:
        warpers.append(TopPLogitsWarper(top_p))
    return warpers
