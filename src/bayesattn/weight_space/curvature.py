"""The generalised Gauss-Newton matrix Σ J^T Λ J of a network's likelihood, from rows r with Σ r r^T equal to it.

J is the Jacobian of an example's outputs, Λ = L L^T the Hessian of -log p(y | outputs), block-diagonal over the positions of a sequence.
The rows are L^T J, one for each output; or, cheaper, random combinations ε^T L^T J with random signs ε, whose
expected sum of squares is the same.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from bayesattn.prediction.calling import batch_size
from bayesattn.support.annotations import Float

LaplaceLikelihood = Literal["categorical", "gaussian"]
Output = Callable[[Any], Any]

LARGEST_BLOCK = 2**25
"""How many numbers of rows are held at once."""


def natural_outputs(outputs: Any, likelihood: LaplaceLikelihood) -> Float[Tensor, "batch *positions outputs"]:
    """What is linearised: logits, or (mean, log of the standard deviation) stacked last."""
    if likelihood == "categorical":
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"likelihood='categorical' needs a model that returns logits, got {type(outputs).__name__}: use output=."
            )
        return outputs
    if not (isinstance(outputs, (tuple, list)) and len(outputs) == 2):
        raise TypeError(
            f"likelihood='gaussian' needs a model that returns (mean, standard deviation), got {type(outputs).__name__}: use output=."
        )
    mean, scale = outputs
    return torch.stack([mean, scale.log().expand_as(mean)], -1)


def model_outputs(natural: Tensor, likelihood: LaplaceLikelihood) -> Any:
    """The inverse of `natural_outputs`."""
    return natural if likelihood == "categorical" else (natural[..., 0], natural[..., 1].exp())


def hessian_root(natural: Tensor, likelihood: LaplaceLikelihood) -> Float[Tensor, "*positions outputs outputs"]:
    """L with L L^T = Λ: diag(p) - p p^T for logits; diag(1/σ², 2), the Fisher information, for (mean, log σ)."""
    if likelihood == "categorical":
        p = natural.softmax(-1)
        return torch.diag_embed(p.sqrt()) - p.unsqueeze(-1) * p.sqrt().unsqueeze(-2)
    inverse = (-natural[..., 1]).exp()
    return torch.diag_embed(torch.stack([inverse, torch.full_like(inverse, 2.0**0.5)], -1))


_one_at_a_time = threading.RLock()


@contextmanager
def differentiable_attention() -> Iterator[None]:
    """Attention in plain operations: torch's fused ones have no forward derivatives and cannot be vectorised over examples.

    One thread at a time: torch's switches, and the level of its forward derivatives, are the process's. Other threads meanwhile
    compute the same attention in plain operations too.
    """
    with _one_at_a_time:
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)


def gauss_newton_rows(
    run: Callable[[dict[str, Tensor], Any], Tensor],
    parameters: dict[str, Tensor],
    inputs: Any,
    mask: Tensor | None,
    likelihood: LaplaceLikelihood,
    samples: int | None,
    generator: torch.Generator,
) -> Iterator[Float[Tensor, "rows parameters"]]:
    """The rows of these examples, block by block.

    `run(parameters, inputs)` gives the natural outputs of a batch. `mask` says which positions of each example count. With
    `samples`, each example has so many random rows in place of one for each output.
    """
    size = sum(parameter.numel() for parameter in parameters.values())
    batch = batch_size(inputs)
    first = run(parameters, pytree.tree_map(lambda leaf: leaf[:1], inputs))
    shape, kind = first.shape[1:], {"dtype": first.dtype, "device": first.device}
    each = shape.numel() if samples is None else samples
    chunk = max(1, LARGEST_BLOCK // (each * size))

    def rows_of_example(example: Any, counted: Tensor, signs: Tensor) -> Tensor:
        def outputs(values: dict[str, Tensor]) -> Tensor:
            return run(values, pytree.tree_map(lambda leaf: leaf.unsqueeze(0), example)).squeeze(0)

        natural, pull_back = torch.func.vjp(outputs, parameters)[:2]
        root = hessian_root(natural, likelihood) * counted.unsqueeze(-1).unsqueeze(-1)
        cotangents = torch.einsum("...ok,s...k->s...o", root, signs)
        (gradients,) = torch.func.vmap(pull_back)(cotangents)
        return torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1) / signs.shape[0] ** 0.5

    for start in range(0, batch, chunk):
        part = pytree.tree_map(lambda leaf, start=start: leaf[start : start + chunk], inputs)
        count = min(chunk, batch - start)
        counted = torch.ones(count, *shape[:-1], **kind) if mask is None else mask[start : start + chunk].to(**kind)
        if samples is None:
            basis = torch.eye(shape.numel(), **kind).view(-1, *shape) * shape.numel() ** 0.5
            signs = basis.expand(count, *basis.shape)
        else:
            drawn = torch.randint(0, 2, (count, samples, *shape), generator=generator)
            signs = 2.0 * drawn.to(**kind) - 1.0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*batching rule.*")  # slower, not wrong
            rows = torch.func.vmap(rows_of_example)(part, counted, signs)
        yield rows.detach().flatten(0, 1)


def check_deterministic(model: nn.Module) -> None:
    """Curvature is that of one function: refuse a model in training mode."""
    if any(module.training for module in model.modules()):
        raise ValueError("The model is in training mode: call model.eval() first, so that no dropout is left on.")
