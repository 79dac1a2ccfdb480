"""Text generation that says, token by token, how sure the model is."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.scopes.modes import DrawsOnce
from bayesattn.scopes.modes import sampling as sampling_attention
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int
from bayesattn.support.replica import altered, in_eval_mode


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

    The samples are copies in the batch, each with its own noise, and from the first random layer on with its own cache; the layers
    below it run once for all samples. Their mean is the predictive distribution of the next token; the most probable token is taken
    (or one is drawn), and all copies go on with it.

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
    warpers = _warpers(temperature, top_k, top_p) if do_sample else []
    others = folded.pop("logits_processor", [])

    def run(writer: Any, trunk: _Copies | None = None) -> Generation:
        vote = _Vote(samples, do_sample, warpers)
        with torch.no_grad(), sampling_attention(generator):
            result: Any = writer.generate(
                **folded,
                logits_processor=_processor_list([*others, vote]),
                do_sample=False,
                num_beams=1,
                return_dict_in_generate=True,
            )
        if trunk is not None and trunk.passes != len(vote.means):
            raise ValueError(f"{type(model).__name__} runs its layers more than once for a token.")
        return vote.summary(result.sequences[:batch], _end_tokens(model, inputs))

    sharing = None if samples == 1 or model in _apart else _sharing_the_trunk(model, batch, samples)
    if sharing is not None:
        noise = None if generator is None else generator.get_state()
        try:
            return run(*sharing)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            # a layer that wants all copies, or an error of the caller's own, which the run below meets again and raises
            if generator is not None and noise is not None:
                generator.set_state(noise)
        generation = run(in_eval_mode(model))
        _apart.add(model)
        return generation
    return run(in_eval_mode(model))


_apart: WeakSet[nn.Module] = WeakSet()
"""Models whose samples cannot share a trunk, found by trying."""

_OF_EXAMPLES = (
    "hidden_states",
    "attention_mask",
    "position_ids",
    "position_embeddings",
)
"""Arguments of transformers' decoder layers that have the batch first."""


def _sharing_the_trunk(model: Any, batch: int, samples: int) -> tuple[nn.Module, _Copies] | None:
    """The model in eval mode, its layers below the first random one running the first of all copies alone; None if there are none.

    All copies hold one text, so these layers would compute, and cache, the same for each. With it what is before the first layer.
    """
    config = getattr(model, "config", None)
    layers = None if getattr(config, "is_encoder_decoder", False) else _stack(model)
    if layers is None:
        return None
    is_trunk = [all(_is_certain(part) for part in layer.modules()) for layer in layers]
    first = is_trunk.index(False) if False in is_trunk else 0
    if first == 0:
        return None
    changes: dict[nn.Module, dict[str, Any]] = {
        module: {"training": False} for module in model.modules() if module.training
    }
    copies = [_Copies(samples, batch, branches=place == first) for place in range(first + 1)]
    for hook, layer in zip(copies, layers, strict=False):
        hooks = OrderedDict(layer._forward_pre_hooks)
        with_kwargs = OrderedDict(layer._forward_pre_hooks_with_kwargs)
        hooks[id(hook)], with_kwargs[id(hook)] = hook, True  # pyright: ignore[reportArgumentType]
        changes.setdefault(layer, {}).update(_forward_pre_hooks=hooks, _forward_pre_hooks_with_kwargs=with_kwargs)
    return altered(model, changes), copies[0]


def _stack(model: nn.Module) -> list[nn.Module] | None:
    """The one list of layers that holds all that may be random."""
    uncertain = {part for part in model.modules() if not _is_certain(part)}
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and len(stack) > 1 and uncertain and uncertain <= set(stack.modules()):
            return list(stack)
    return None


def _is_certain(module: nn.Module) -> bool:
    """Whether this module of itself, in eval mode, does the same for every copy: one of torch's or transformers', as they made it."""
    return type(module).__module__.split(".")[0] in ("torch", "transformers")


class _Copies:
    """A hook before a layer: in the trunk it leaves the first sample alone, where the samples branch off it makes copies again."""

    def __init__(self, samples: int, batch: int, branches: bool):
        self.samples = samples
        self.batch = batch
        self.branches = branches
        self.passes = 0

    def __call__(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self.passes += 1
        names = list(inspect.signature(layer.forward).parameters)
        changed = [self._of(name, argument) for name, argument in zip(names, args, strict=False)]
        return (*changed, *args[len(changed) :]), {name: self._of(name, argument) for name, argument in kwargs.items()}

    def _of(self, name: str, argument: Any) -> Any:
        if isinstance(argument, (tuple, list)):
            return type(argument)(self._of(name, each) for each in argument)
        if not isinstance(argument, Tensor) or argument.dim() < 2:
            return argument
        if self.branches:
            is_first = name == "hidden_states" and argument.shape[0] == self.batch
            return argument.repeat(self.samples, *(1,) * (argument.dim() - 1)) if is_first else argument
        if argument.shape[0] != self.samples * self.batch:
            return argument
        if name not in _OF_EXAMPLES:
            raise ValueError(f"{name} may be of all copies, or not.")
        return argument[: self.batch]


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
