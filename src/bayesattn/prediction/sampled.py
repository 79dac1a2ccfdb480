"""`predict`: many sampled passes of a model, folded into the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesattn.attention.dropping import CountedDropout
from bayesattn.prediction.calling import batch_size, call, default_output, map_batch, tokenised
from bayesattn.prediction.likelihood import LIKELIHOODS, Likelihood, likelihood_of
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.scopes.global_noise import noise_from
from bayesattn.scopes.modes import DrawsOnce, DrawsOutputs, RunsTogether, one_draw, sampling
from bayesattn.support import checks
from bayesattn.support.processor import cache_bytes
from bayesattn.support.replica import altered, in_eval_mode
from bayesattn.support.vectorised import WholeLinear, without_loops

LEAST_ROWS, MOST_ROWS = 64, 1024
"""Rows of a folded batch where the caller does not say: fewer lose more by the work of a call than they win by the caches."""


def predict(
    model: nn.Module,
    inputs: Any,
    samples: int = 32,
    *,
    tokenizer: Callable[..., Any] | None = None,
    likelihood: Likelihood | None = None,
    output: Callable[[Any], Any] | None = None,
    dropout: bool = False,
    point_estimate: bool = False,
    max_rows: int | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    """Sample the model's predictions: `samples` passes in eval mode with random attention weights, or random weights.

    One pass draws all samples of as many inputs as fit in `max_rows` rows. What comes before the first random operation is computed
    once for all of them, and so are the scores of the first random attention (`torch.vmap` over the samples). A model that vmap cannot
    run gets copies of the inputs folded into its batch instead: the same distribution, more slowly. A network whose weights are random
    (`bayesattn.weight_space`) is drawn once for each sample, and runs once for each.

    Args:
        model: called as `model(inputs)`, `model(*inputs)` for a tuple or list, `model(**inputs)` for a dict or mapping.
        inputs: a tensor, or a tuple, list or dict whose tensors have the batch first. Anything else is passed on as it is. With a
            `tokenizer`, a text or a list of texts, or of pairs of texts.
        samples: how many.
        tokenizer: a Hugging Face tokenizer, which makes padded tensors of the texts; the model's device is found from its parameters.
        likelihood: what the model's output is. "categorical": logits, classes last; gives a `CategoricalPrediction`. "bernoulli":
            logits of labels that may hold together; gives a `BernoulliPrediction`. "gaussian": a pair (mean, standard deviation);
            gives a `GaussianPrediction`. "values": the values themselves; gives a `Prediction`. By default what the config of a
            Hugging Face model says, and "categorical" for others.
        output: takes the output out of what the model returns; by default `.logits` if there is such an attribute.
        dropout: leave the model's dropout on too (MC dropout).
        point_estimate: one pass with the posteriors' means in place of samples, as the papers predict; `samples` is not used.
        max_rows: largest folded batch: samples times inputs. By default as many as the processor's cache holds of the model's largest
            tensor, but 64 at least and 1,024 at most; 1,024 on a GPU, and halved by itself when memory runs out.
            The draws for a seed depend on it: give it where another machine is to draw the same.
        generator: where all noise comes from, dropout's too.

    >>> import torch, bayesattn as ba
    >>> encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, batch_first=True), 1)
    >>> model = ba.convert(encoder, ba.Weibull(k=5.0))
    >>> prediction = ba.predict(model, torch.randn(3, 7, 16), samples=8)
    >>> prediction.mean.shape, prediction.mutual_information.shape
    (torch.Size([3, 7, 16]), torch.Size([3, 7]))
    """
    checks.whole("samples", samples)
    if max_rows is not None:
        checks.whole("max_rows", max_rows)
    if likelihood is not None:
        checks.one_of("likelihood", likelihood, LIKELIHOODS)
    inputs = tokenised(model, inputs, tokenizer)
    take = output or default_output
    collected = sampled_outputs(
        model,
        inputs,
        samples,
        lambda result: output_tensors(take(result), likelihood),
        dropout=dropout,
        point_estimate=point_estimate,
        max_rows=max_rows,
        generator=generator,
    )
    _say_if_nothing_is_random(model, collected)
    return _KINDS[likelihood or likelihood_of(model, collected[0])](*collected)


def sampled_outputs(
    model: nn.Module,
    inputs: Any,
    samples: int,
    take: Callable[[Any], tuple[Tensor, ...]],
    *,
    dropout: bool = False,
    point_estimate: bool = False,
    max_rows: int | None = None,
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """What `take` makes of each sampled pass, [samples, batch, ...]: the work of `predict`, see there for the arguments."""
    batch = batch_size(inputs)
    on_processor = all(parameter.device.type == "cpu" for parameter in model.parameters())
    rows = MOST_ROWS if max_rows is None and not on_processor else max_rows
    if point_estimate:
        if dropout:
            raise ValueError("point_estimate=True has no noise: leave dropout=True out, or sample.")
        samples = 1
    noise = nullcontext() if point_estimate else sampling(generator)
    random_as_a_whole = any(isinstance(module, DrawsOnce) for module in model.modules())
    in_parts = _run_sample_by_sample if random_as_a_whole else _run_in_chunks
    running = _predicting(model, dropout)
    dropping = noise_from(generator) if dropout and generator is not None else nullcontext()
    counted = CountedDropout(generator) if dropout else nullcontext()
    with torch.no_grad(), noise, dropping, counted:
        sampler = _Sampler(model, running, take, generator, not dropout and _only_outputs_are_drawn(model))
        while True:
            try:
                chunks = in_parts(sampler, inputs, batch, samples, rows)
                return [torch.cat(parts, 1) for parts in zip(*chunks, strict=True)]
            except torch.OutOfMemoryError:
                if rows == 1:
                    raise
                rows = max(1, min(rows or MOST_ROWS, batch * samples) // 2)


_KINDS: dict[Likelihood, type[Prediction]] = {
    "categorical": CategoricalPrediction,
    "bernoulli": BernoulliPrediction,
    "gaussian": GaussianPrediction,
    "values": Prediction,
}


def _say_if_nothing_is_random(model: nn.Module, collected: list[Tensor]) -> None:
    samples = collected[0]
    if len(samples) > 1 and samples.numel() and all(torch.equal(one[0], one[-1]) for one in collected):
        warnings.warn(
            f"All {len(samples)} samples of {type(model).__name__} are the same: nothing in it is random. Make it so with ba.convert or "
            "ba.weight_space, sample its dropout with dropout=True, or ask for samples=1.",
            stacklevel=3,
        )


def _run_in_chunks(
    sampler: _Sampler, inputs: Any, batch: int, samples: int, rows: int | None
) -> Iterator[list[Tensor]]:
    """Outputs [samples, part of the batch, ...], part by part: all samples of a few inputs, which share what is not random.

    Without `rows`, the first part is a small one, by which the others are measured.
    """
    start = 0
    while True:
        most = sampler.rows_in_cache() if rows is None else rows
        at_once = samples if sampler.shares_all else min(samples, most)
        size = most if sampler.shares_all else max(1, most // at_once)
        part = map_batch(inputs, batch, lambda tensor, start=start, size=size: tensor[start : start + size])
        size = min(size, batch - start)
        measured = sampler.measuring() if rows is None and size < batch else nullcontext()
        with measured:
            chunks = [sampler.draw(part, size, min(at_once, samples - drawn)) for drawn in range(0, samples, at_once)]
        yield [torch.cat(parts) for parts in zip(*chunks, strict=True)]
        start += size
        if start >= batch:  # one part of nothing where there is nothing
            return


def _run_sample_by_sample(
    sampler: _Sampler, inputs: Any, batch: int, samples: int, rows: int | None
) -> Iterator[list[Tensor]]:
    """The same for a network that is random as a whole: each sample is one network, for the whole batch."""
    most = MOST_ROWS if rows is None else rows
    parts = [
        map_batch(inputs, batch, lambda tensor, start=start: tensor[start : start + most])
        for start in range(0, max(batch, 1), most)
    ]
    if isinstance(sampler.running, RunsTogether) and (made := _all_networks(sampler, inputs, batch, samples, most)):
        yield from made
        return
    results: list[list[list[Tensor]]] = [[] for _ in parts]
    for index in range(samples):
        with one_draw(index):
            for part, collected in zip(parts, results, strict=True):
                collected.append([_unfold(tensor, 1, batch_size(part)) for tensor in sampler.run(part)])
    for collected in results:
        yield [torch.cat(tensors) for tensors in zip(*collected, strict=True)]


def _all_networks(sampler: _Sampler, inputs: Any, batch: int, samples: int, rows: int) -> list[list[Tensor]] | None:
    """The same where the networks of all samples can run in one pass; None where they cannot."""
    network: Any = sampler.running
    size = max(1, rows // min(samples, len(network)))
    found: list[list[Tensor]] = []
    for start in range(0, max(batch, 1), size):
        part = map_batch(inputs, batch, lambda tensor, start=start: tensor[start : start + size])

        def run(member: nn.Module, part: Any = part) -> tuple[Tensor, ...]:
            return tuple(_unfold(tensor, 1, batch_size(part))[0] for tensor in sampler.run_with(member, part))

        made = network.outputs_together(run, samples)
        if made is None:
            return None
        networks = torch.arange(samples) % len(
            made[0]
        )  # asked for more samples than there are networks, each answers again
        found.append([tensor[networks.to(tensor.device)] for tensor in made])
    return found


class _Widest(TorchFunctionMode):
    """What a row of the largest result of any operation takes; inside vmap, a result is one sample's."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 1
        self.bytes_of_row = 0.0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if type(result) is Tensor:
            self.bytes_of_row = max(self.bytes_of_row, result.numel() * result.element_size() / self.rows)
        return result


class _Sampler:
    """Draws outputs, [samples, batch, ...]: by `torch.vmap` until that fails, then by folding."""

    def __init__(
        self,
        model: nn.Module,
        running: nn.Module,
        take: Callable[[Any], tuple[Tensor, ...]],
        generator: torch.Generator | None,
        only_outputs: bool,
    ):
        self.model = model
        self.running = running
        self.take = take
        self.generator = generator
        self.only_outputs = only_outputs
        self.widest: _Widest | None = None

    def rows_in_cache(self) -> int:
        """How many rows of the model's largest tensor the processor's cache holds, as far as that has been measured."""
        if self.widest is None:
            return LEAST_ROWS
        return max(LEAST_ROWS, min(MOST_ROWS, int(cache_bytes() // max(self.widest.bytes_of_row, 1.0))))

    def measuring(self) -> AbstractContextManager[Any]:
        """A block in which a part of the inputs runs, by which the next ones are measured."""
        if self.widest is not None:
            return nullcontext()
        self.widest = _Widest()
        return self.widest

    @property
    def shares_all(self) -> bool:
        """Whether samples cost nothing but their draws of the outputs."""
        return self.only_outputs and _vmap_works.get(self.model, True)

    def run(self, inputs: Any) -> tuple[Tensor, ...]:
        return self.run_with(self.running, inputs)

    def run_with(self, network: nn.Module, inputs: Any) -> tuple[Tensor, ...]:
        return self.take(call(network, inputs))

    def draw(self, inputs: Any, size: int, samples: int) -> list[Tensor]:
        if samples > 1 and _vmap_works.get(self.model, True):
            noise = None if self.generator is None else self.generator.get_state()
            try:
                return self._together(inputs, size, samples)
            except torch.OutOfMemoryError:
                raise
            except Exception:
                # an operation that vmap does not know, a branch that depends on the data, or an error of the model's own, which
                # folding meets again and raises
                if self.generator is not None and noise is not None:
                    self.generator.set_state(noise)  # the same prediction as when folding is known to be needed
            if self.only_outputs:  # so many of them were for vmap alone
                parts = [self._folded(inputs, size, 1) for _ in range(samples)]
                drawn = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
            else:
                drawn = self._folded(inputs, size, samples)
            _vmap_works[self.model] = False
            return drawn
        return self._folded(inputs, size, samples)

    def _passes(self, rows: int) -> None:
        """The next pass has so many rows."""
        if self.widest is not None:
            self.widest.rows = rows

    def _folded(self, inputs: Any, size: int, samples: int) -> list[Tensor]:
        self._passes(size * samples)
        folded = map_batch(inputs, size, lambda tensor: torch.cat([tensor] * samples))
        return [_unfold(tensor, samples, size) for tensor in self.run(folded)]

    def _together(self, inputs: Any, size: int, samples: int) -> list[Tensor]:
        """vmap over samples that differ in nothing but their random numbers: it computes what has none of them once."""
        self._passes(size)
        with nullcontext() if self.model in _vmap_works else without_loops(), WholeLinear():
            drawn = torch.vmap(lambda _: self.run(inputs), randomness="different")(torch.arange(samples))
        for tensor in drawn:
            if tensor.dim() < 2 or tensor.shape[1] != size:
                raise ValueError("The output does not have the batch first.")
        _vmap_works[self.model] = True
        return list(drawn)


_vmap_works: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether vmap runs a model without looping over the samples, as far as that has been tried."""


def output_tensors(result: Any, likelihood: Likelihood | None) -> tuple[Tensor, ...]:
    """The tensors of an output that is what `likelihood` says: one, or the means and standard deviations of Gaussians."""
    if likelihood == "gaussian":
        if not (isinstance(result, (tuple, list)) and len(result) == 2):
            raise TypeError(
                f"likelihood='gaussian' needs a model that returns (mean, standard deviation), got {type(result).__name__}: use output=."
            )
        return tuple(result)
    if not isinstance(result, Tensor):
        raise TypeError(
            f"The model returned {type(result).__name__}, not a tensor: say with output= how to take the prediction out of it."
        )
    return (result,)


def _unfold(tensor: Tensor, copies: int, size: int) -> Tensor:
    if tensor.dim() == 0 or tensor.shape[0] != copies * size:
        raise ValueError(
            f"The model returned shape {tuple(tensor.shape)} for a batch of {copies * size}: "
            "predict needs the batch first in inputs and output."
        )
    return tensor.unflatten(0, (copies, size))


def _only_outputs_are_drawn(model: nn.Module) -> bool:
    """Whether a head that draws the outputs is all that is random; posteriors of attention are known by what they can do."""
    parts = list(model.modules())
    return any(isinstance(part, DrawsOutputs) for part in parts) and not any(
        hasattr(part, "log_sample") for part in parts
    )


def _drops_out(module: nn.Module) -> bool:
    """Whether dropout is a part of this module: a dropout layer, or a layer that drops its weights out by its own mode.

    Layers of torch and of PyTorch Geometric keep the probability as a number. Attention of Hugging Face (known by `is_causal`)
    also does, or has a dropout layer whose probability it reads and which it does not call.
    """
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return True
    held = [getattr(module, name, 0.0) for name in ("dropout", "attention_dropout")]
    return any(
        (isinstance(each, float) and each > 0) or (isinstance(each, nn.Dropout) and hasattr(module, "is_causal"))
        for each in held
    )


def _predicting(model: nn.Module, dropout: bool) -> nn.Module:
    """The model in eval mode, with dropout left on if asked. The model itself stays as it is: other threads may be running it."""
    if not dropout:
        return in_eval_mode(model)
    with_dropout = {module for module in model.modules() if _drops_out(module)}
    if not with_dropout:
        raise ValueError(f"dropout=True, but {type(model).__name__} has no dropout layer.")
    changes: dict[nn.Module, dict[str, Any]] = {
        module: {"training": module in with_dropout} for module in model.modules()
    }
    for module in changes:  # torch's eval fast path goes past the dropout layers
        if isinstance(module, nn.TransformerEncoderLayer):
            changes[module]["activation_relu_or_gelu"] = 0
        elif isinstance(module, nn.TransformerEncoder):
            changes[module]["use_nested_tensor"] = False
    return altered(model, changes)
