"""How KL terms leave a network.

A forward pass returns what it always returned. Layers hand their KL to the innermost open recorder:

    with ba.record() as latents:
        logits = model(x)
    loss = ba.elbo(nll, latents, ...)

The state is per thread and per asyncio task. The terms are a linked list and not a Python list because torch.compile guards on a
list's length: a compiled layer would be compiled again for every layer before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.scopes.variable import PerThread, ScopeVariable
from bayesattn.support.annotations import Float


class LocalTerm:
    """The KL of one layer's latent variables of each example, and how many of them there are."""

    def __init__(
        self,
        kl: Float[Tensor, " batch"],
        elements: Float[Tensor, " batch"],
        rows: Float[Tensor, " batch"],
        tokens: Float[Tensor, " batch"],
        source: Any,
        are_attention_weights: bool,
        with_gradient: bool,
        previous: LocalTerm | GlobalTerm | None,
    ):
        self.kl = kl
        self.elements = elements
        self.rows = rows
        self.tokens = tokens
        self.source = source
        self.are_attention_weights = are_attention_weights
        self.with_gradient = with_gradient
        self.previous = previous


class GlobalTerm:
    """The KL of latent variables of the whole data set, such as weights."""

    def __init__(
        self,
        kl: Float[Tensor, ""],
        source: Any,
        with_gradient: bool,
        previous: LocalTerm | GlobalTerm | None,
    ):
        self.kl = kl
        self.source = source
        self.with_gradient = with_gradient
        self.previous = previous


class Latents:
    """The KL terms of what ran while a recorder was open, in the order in which it ran."""

    def __init__(self) -> None:
        self._last: LocalTerm | GlobalTerm | None = None

    def _terms(self) -> list[LocalTerm | GlobalTerm]:
        terms = []
        term = self._last
        while term is not None:
            terms.append(term)
            term = term.previous
        return terms[::-1]

    @property
    def local_terms(self) -> list[LocalTerm]:
        """One term for every time a layer with latents of each example ran: a layer that ran twice has two."""
        return [term for term in self._terms() if isinstance(term, LocalTerm)]

    @property
    def global_terms(self) -> list[GlobalTerm]:
        """One term for every source of latents of the whole data set, however often it ran."""
        by_source = {id(term.source): term for term in self._terms() if isinstance(term, GlobalTerm)}
        return list(by_source.values())

    def __len__(self) -> int:
        return len(self.local_terms) + len(self.global_terms)

    @property
    def local_kl(self) -> Float[Tensor, " batch"]:
        """The sum of all local terms, for each example."""
        return _sum([term.kl for term in self.local_terms], "local")

    @property
    def global_kl(self) -> Float[Tensor, ""]:
        """The sum of all global terms."""
        return _sum([term.kl for term in self.global_terms], "global")

    def by_layer(self, model: nn.Module) -> dict[str, Tensor]:
        """The KL of each layer of `model`, local ones as [batch], global ones as scalars.

        A layer that ran several times has the sum of its terms.
        """
        names = {id(module): name for name, module in model.named_modules()}
        collected: dict[str, Tensor] = {}
        for term in [*self.local_terms, *self.global_terms]:
            name = names.get(id(term.source))
            if name is None:
                raise ValueError(f"A {type(term.source).__name__} that recorded a KL is not a part of this model.")
            collected[name] = collected[name] + term.kl if name in collected else term.kl
        return collected


_recorder: ScopeVariable[Latents | None] = ScopeVariable("record()", None)
examples = PerThread(None)
"""While a layer runs whose batch is one of parts of examples, such as windows of images: how many examples there are.

The parts of an example are neighbours in the batch; their KL is added up."""


@contextmanager
def record() -> Iterator[Latents]:
    """Collect the KL terms of every forward pass in this block.

    >>> import torch, bayesattn as ba
    >>> attention = ba.nn.MultiheadAttention(16, 2, batch_first=True, posterior=ba.Weibull(k=10.0))
    >>> x = torch.randn(3, 5, 16)
    >>> with ba.record() as latents:
    ...     output, _ = attention(x, x, x)
    >>> latents.local_kl.shape
    torch.Size([3])
    """
    latents = Latents()
    with _recorder.held(latents):
        yield latents


def is_recording() -> bool:
    """Whether a `record()` block is open."""
    return _recorder.get() is not None


def kl_is_wanted() -> bool:
    """Whether a layer must compute its KL now.

    With gradients on it always must, recorder or not: gradient checkpointing runs a layer again, after the recorder
    was closed, and demands the same arithmetic as in the first run.
    """
    return torch.is_grad_enabled() or is_recording()


def add_local(
    kl: Float[Tensor, " batch"],
    elements: Float[Tensor, " batch"],
    rows: Float[Tensor, " batch"],
    tokens: Float[Tensor, " batch"],
    source: Any,
    are_attention_weights: bool = False,
) -> None:
    """Hand one layer's KL of each example to the open recorder, if there is one.

    `elements`, `rows` and `tokens` count the latent variables, their distributions and the positions they belong to:
    what `elbo(kl_reduction=...)` divides by. `are_attention_weights`: the latents are noise on a model's attention, whose KL
    `elbo` takes lightly unless told otherwise, and no alignment or bottleneck that the model's bound is about.
    """
    recorder = _open_recorder()
    if recorder is not None:
        kl, elements, rows, tokens = (_of_examples(total) for total in (kl, elements, rows, tokens))
        recorder._last = LocalTerm(
            kl, elements, rows, tokens, source, are_attention_weights, torch.is_grad_enabled(), recorder._last
        )


def add_global(kl: Float[Tensor, ""], source: Any) -> None:
    """Hand the KL of latents of the whole data set to the open recorder, if there is one; once for each source."""
    recorder = _open_recorder()
    if recorder is not None:
        recorder._last = GlobalTerm(kl, source, torch.is_grad_enabled(), recorder._last)


def _of_examples(parts: Float[Tensor, " parts"]) -> Float[Tensor, " batch"]:
    number: int | None = examples.value
    if not number or parts.shape[0] == number or parts.shape[0] % number:
        return parts
    return parts.unflatten(0, (number, -1)).sum(1)


def _is_recomputing() -> bool:
    """Whether this is inside a backward pass: gradient checkpointing runs the layer again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _open_recorder() -> Latents | None:
    if torch.compiler.is_compiling():
        return _recorder.get()
    return None if _is_recomputing() else _recorder.in_context.get()  # a term of the first run is recorded already


def _sum(terms: list[Tensor], kind: str) -> Tensor:
    if not terms:
        raise ValueError(
            f"No {kind} KL was recorded. Run the model inside `with ba.record() as latents:`, and make it Bayesian first "
            "(ba.convert, or a layer of ba.nn)."
        )
    shapes = {tuple(term.shape) for term in terms}
    if len(shapes) > 1:
        raise ValueError(
            f"Layers recorded KL terms of different batch sizes, {sorted(shapes)}: record one forward pass of one batch, "
            "or add the terms of `latents.local_terms` yourself."
        )
    return torch.stack(terms).sum(0)
