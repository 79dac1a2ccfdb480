"""What is easily forgotten when another library trains a converted model: its KL, by `transformers.Trainer`; its posteriors, by PEFT."""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

from bayesattn.posteriors import Posterior, Softmax
from bayesattn.scopes.recording import is_recording


class ForgottenKL:
    """A hook before a model's forward: says once that no KL is in the loss, or that PEFT has frozen what it trains."""

    def __init__(self) -> None:
        self.said = False
        self.looked = False

    def __call__(self, model: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling() or self.said or not model.training or not torch.is_grad_enabled():
            return
        if not self.looked:
            self.looked = True
            if hasattr(model, "peft_config") and _are_frozen(model):
                warnings.warn(
                    f"PEFT has frozen the posteriors of {type(model).__name__}: their parameters are not trained and not saved with the "
                    "adapter. Wrap it with bayesattn.huggingface.get_peft_model, or name modules_to_save=['posterior'] in its config.",
                    stacklevel=2,
                )
        if is_recording():  # whoever trains it knows of the KL: nothing is left to say
            for key, hook in list(model._forward_pre_hooks.items()):
                if hook is self:
                    del model._forward_pre_hooks[key]
            return
        if not _is_in_trainer() or not _has_kl(model):
            return
        self.said = True
        warnings.warn(
            f"{type(model).__name__} is Bayesian, and transformers.Trainer trains it: the KL of its posteriors is not in the loss. "
            "Use bayesattn.huggingface.BayesianTrainer, whose loss is the ELBO; or go on, if the likelihood alone is what you want.",
            stacklevel=2,
        )


def _is_in_trainer() -> bool:
    """Whether the Trainer's `training_step` is on the stack."""
    trainer = sys.modules.get("transformers.trainer")
    frame = None if trainer is None else sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "training_step" and frame.f_globals.get("__name__") == "transformers.trainer":
            return True
        frame = frame.f_back
    return False


def _are_frozen(model: nn.Module) -> bool:
    posteriors = (module for module in model.modules() if isinstance(module, Posterior))
    parameters = [parameter for posterior in posteriors for parameter in posterior.parameters()]
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _has_kl(model: nn.Module) -> bool:
    return any(isinstance(module, Posterior) and not isinstance(module, Softmax) for module in model.modules())
