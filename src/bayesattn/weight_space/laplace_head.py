"""Last-layer Laplace at the price of one pass: a Gaussian around the weights of a trained head, its covariance a Kronecker product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.heads import linear_head, put_head, row_noise, training_features
from bayesattn.weight_space.laplace import LaplacePosterior
from bayesattn.weight_space.selection import Where

Model = TypeVar("Model", bound=nn.Module)


class KroneckerPosterior(LaplacePosterior):
    """H ≈ A ⊗ G with A = Σ φ φ^T of the layer's inputs (a last 1 for the bias) and G the mean of diag(p) - p p^T."""

    def __init__(self, inputs: Float[Tensor, "features features"], outputs: Float[Tensor, "classes classes"]):
        super().__init__()
        self.input_values, self.input_vectors = torch.linalg.eigh(inputs)
        self.output_values, self.output_vectors = torch.linalg.eigh(outputs)
        self.input_values, self.output_values = self.input_values.clamp_min(0.0), self.output_values.clamp_min(0.0)

    def eigenvalues(self) -> Tensor:
        return torch.outer(self.output_values, self.input_values).flatten()

    def deviation(self) -> Tensor:
        """Of the layer's weights and biases, [classes, features + 1], flattened."""
        roots = (self.eigenvalues() + self.prior_precision).rsqrt().view(len(self.output_values), -1)
        noise = torch.empty_like(roots).normal_(generator=modes.current_generator())
        return (self.output_vectors @ (roots * noise) @ self.input_vectors.T).flatten()

    def covariance(self) -> Tensor:
        vectors = torch.kron(self.output_vectors, self.input_vectors)
        return (vectors / (self.eigenvalues() + self.prior_precision)) @ vectors.T


class LaplaceHead(modes.DrawsOutputs, nn.Linear):
    """A linear layer whose logits, inside `sampling()` in eval mode, are drawn: N(W φ, J Σ J^T) for each row.

    `laplace_head` fits it; all that was fitted is in the state dict. Without a posterior it has no noise; the state of a plain linear
    layer leaves it so.
    """

    input_values: Tensor
    input_vectors: Tensor
    output_values: Tensor
    output_vectors: Tensor
    prior_precision: Tensor

    def __init__(self, layer: nn.Linear, posterior: KroneckerPosterior | None = None):
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        if posterior is None:
            inputs, outputs = layer.in_features + (layer.bias is not None), layer.out_features
            posterior = KroneckerPosterior(torch.zeros(inputs, inputs), torch.zeros(outputs, outputs))
            posterior.prior_precision = math.inf
        for name in ("input_values", "input_vectors", "output_values", "output_vectors"):
            self.register_buffer(name, getattr(posterior, name).to(layer.weight))
        self.register_buffer("prior_precision", torch.tensor(posterior.prior_precision).to(layer.weight))

    @property
    def fitted(self) -> bool:
        """Whether it has a posterior."""
        return bool(self.prior_precision.isfinite())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        names = [name for name, _ in self.named_buffers()]
        if not any(f"{prefix}{name}" in state_dict for name in names):
            state_dict |= {f"{prefix}{name}": getattr(self, name) for name in names}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def forward(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape classes"]:
        logits = super().forward(input)
        if self.training or not modes.is_sampling():
            return logits
        return logits + (self.scales(input) * row_noise(logits)) @ self.output_vectors.T

    def scales(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape classes"]:
        """Standard deviations of the logits along the eigenvectors of G."""
        rotated = (input if self.bias is None else F.pad(input, (0, 1), value=1.0)) @ self.input_vectors
        shares = 1.0 / (torch.outer(self.input_values, self.output_values) + self.prior_precision)
        return (rotated.square() @ shares).sqrt()

    def variance(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """The variance of the logits, the mean over classes."""
        return self.scales(input).square().mean(-1)


def laplace_head(
    model: Model,
    train: Any,
    where: Where = "last",
    *,
    prior_precision: float | None = None,
    output: Callable[[Any], Any] | None = None,
    max_rows: int = 1024,
) -> Model:
    """Put a Gaussian around the weights of a trained classifier's last layer, in place; one pass over the training data.

    `laplace(model, x, where="last", structure="full")` has the exact curvature, for small heads, and draws whole networks at two passes
    a sample. This one serves any number of classes and draws the logits of each row: features are computed once for all samples.

    Args:
        model: a trained classifier; its weights stay.
        train: (inputs, labels), a mapping with "labels", or batches of those; labels say only what does not count (-100).
        where: the layer, see `choose_layers`; its outputs are the logits.
        prior_precision: δ of N(θ*, (A ⊗ G + δ)^-1); by default that of highest marginal likelihood.
        output: takes the logits out of what the model returns; by default `.logits` if there is such an attribute.
        max_rows: largest batch.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))  # trained, then:
    >>> x, y = torch.randn(50, 3), torch.randint(4, (50,))
    >>> model = ba.weight_space.laplace_head(model, (x, y))
    >>> ba.predict(model, x, samples=8).mutual_information.shape
    torch.Size([50])
    """
    name, layer = linear_head(model, where)
    if isinstance(layer, LaplaceHead) and layer.fitted:
        raise ValueError(f"{name!r} has a Laplace approximation already.")
    if prior_precision is not None:
        checks.positive("prior_precision", prior_precision)
    size = layer.in_features + (layer.bias is not None)
    inputs = torch.zeros(size, size, dtype=torch.float64)
    outputs = torch.zeros(layer.out_features, layer.out_features, dtype=torch.float64)
    rows = 0
    for features, logits in training_features(model, name, train, output, max_rows):
        if logits.shape[-1] != layer.out_features:
            raise ValueError(
                f"where={where!r} is {name!r} with {layer.out_features} outputs, and the model gives {logits.shape[-1]} logits: choose the "
                "layer that gives the logits."
            )
        phi = (features if layer.bias is None else F.pad(features, (0, 1), value=1.0)).float().cpu()
        p = logits.float().softmax(-1).cpu()
        inputs += (phi.T @ phi).double()
        outputs += (torch.diag(p.sum(0)) - p.T @ p).double()
        rows += len(phi)
    posterior = KroneckerPosterior(inputs, outputs / rows)
    weights = [layer.weight, *([] if layer.bias is None else [layer.bias.unsqueeze(1)])]
    found = posterior.best_precision(torch.cat(weights, 1).detach().cpu().flatten())
    posterior.prior_precision = found if prior_precision is None else float(prior_precision)
    put_head(model, name, LaplaceHead(layer, posterior))
    return model
