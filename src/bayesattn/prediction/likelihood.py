"""What a model's output is: logits of classes, logits of labels, a Gaussian, or values."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import Tensor, nn

Likelihood = Literal["categorical", "bernoulli", "gaussian", "values"]
LIKELIHOODS: tuple[str, ...] = get_args(Likelihood)

_OF_PROBLEM: dict[str | None, Likelihood] = {
    "single_label_classification": "categorical",
    "multi_label_classification": "bernoulli",
    "regression": "values",
}
"""Hugging Face's `config.problem_type`."""


def likelihood_of(model: nn.Module, output: Any) -> Likelihood:
    """The likelihood that this output of `model` has, as far as the model says: a Hugging Face config does, else it is "categorical".

    An unknown `problem_type` is refused, and so is a softmax over a single class, which is 1 whatever the input.
    """
    config = getattr(getattr(model, "module", model), "config", None)
    columns = output.shape[-1] if isinstance(output, Tensor) and output.dim() else None
    if hasattr(config, "problem_type") and hasattr(config, "num_labels"):
        problem = config.problem_type  # pyright: ignore[reportOptionalMemberAccess]
        if problem in _OF_PROBLEM:
            return _OF_PROBLEM[problem]
        if problem is not None:
            raise ValueError(
                f"The model's config.problem_type is {problem!r}, not one of {list(_OF_PROBLEM)}: say with likelihood= what its output "
                f"is, one of {list(LIKELIHOODS)}."
            )
        if config.num_labels == 1 and columns == 1:  # pyright: ignore[reportOptionalMemberAccess]
            return "values"  # as Hugging Face trains it: with squared errors
    if columns == 1:
        raise ValueError(
            f"{type(model).__name__} returned one column, and the softmax of a single class is always 1. Say likelihood='bernoulli' if "
            "it is the logit of a yes or no, 'values' if it is the value itself, or 'gaussian' with a model that returns (mean, "
            "standard deviation)."
        )
    return "categorical"
