"""`transformers.Trainer` with the ELBO."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from bayesattn.objective import KLReduction, elbo, warn_if_dwarfed
from bayesattn.schedules import Schedule, constant
from bayesattn.scopes.recording import Latents, record
from bayesattn.support import checks


class BayesianTrainer(Trainer):
    """A `transformers.Trainer` whose only difference is the training loss: the negative ELBO.

        loss = ( Σ NLL + kl_weight · Σ KL ) / items

    The sums run over the examples of one optimiser step, over all its accumulated batches and processes; `items` counts the labels
    in them: examples of a classifier, tokens of a language model. For a model without a KL it is the Trainer's loss. The logs show
    `nll`, `kl` (both per item) and `kl_weight` beside `loss` = nll + kl_weight · kl. Evaluation is the Trainer's: the likelihood of
    the point estimate.

    Args:
        kl_weight: a number, or a schedule of the optimiser step such as `ba.schedules.linear(1000)`; 1 is all of the KL.
        kl_reduction, compare_gradients: see `ba.elbo`.
        dataset_size: number of training examples, for latents of the whole data set; by default the length of `train_dataset`.
        args, kwargs: those of `transformers.Trainer`.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *args: Any,
        kl_weight: float | Schedule = 1.0,
        kl_reduction: KLReduction = "light",
        compare_gradients: bool = True,
        dataset_size: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if self.args.n_gpu > 1:
            raise ValueError(
                "BayesianTrainer does not run under torch.nn.DataParallel, which runs the model in threads that no recorder sees: "
                "start one process for each GPU with torchrun or accelerate launch, or set CUDA_VISIBLE_DEVICES to one of them."
            )
        self.kl_schedule = kl_weight if callable(kl_weight) else constant(checks.not_negative("kl_weight", kl_weight))
        self.kl_reduction: KLReduction = kl_reduction
        self.compare_gradients = compare_gradients
        self.dataset_size = dataset_size
        if dataset_size is None and hasattr(self.train_dataset, "__len__"):
            self.dataset_size = len(self.train_dataset)  # pyright: ignore[reportArgumentType]
        # Makes the Trainer count the items of a step. The count is used here and never handed to the model: some models that
        # accept it ignore it, and their loss would then be too large by the number of accumulated batches.
        self.model_accepts_loss_kwargs = True
        self._logged: list[Tensor] = []
        self._last_logged_step = 0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The ELBO in training, the model's own loss in evaluation."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs)
        items = self._items(inputs)
        with record() as latents:
            # DistributedDataParallel looks for unused parameters in the output: the KL's must be reachable from it
            hook = self.model.register_forward_hook(  # pyright: ignore[reportOptionalMemberAccess]
                lambda module, args, output: _tie_to_output(output, latents) if model is not self.model else None
            )
            try:
                mean_nll, outputs = super().compute_loss(model, inputs, return_outputs=True)
            finally:
                hook.remove()
        examples = latents.local_kl.shape[0] if latents.local_terms else self._examples(inputs)
        kl_weight = checks.not_negative("kl_weight", self.kl_schedule(self.state.global_step))
        parts = elbo(
            torch.zeros(examples, device=mean_nll.device, requires_grad=True),
            latents,
            dataset_size=self.dataset_size,
            kl_weight=1.0,
            kl_reduction=self.kl_reduction,
            compare_gradients=False,  # there is no likelihood in it
        )
        items = examples if items is None else items
        scale = self._scale(items, num_items_in_batch)
        nll = mean_nll * items * scale if items else torch.zeros_like(mean_nll)
        kl = parts.loss * examples * scale
        if self.compare_gradients and (self.kl_reduction != "light" or kl_weight > 1):
            warn_if_dwarfed(nll, kl, kl_weight, latents)
        self._logged.append(torch.stack([nll.detach().float(), kl.detach().float()]))
        loss = nll + kl_weight * kl
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's logs, with the parts of the loss apart."""
        if "loss" in logs and self._logged:
            steps = max(1, self.state.global_step - self._last_logged_step)
            totals: Any = self.accelerator.gather(torch.stack(self._logged).sum(0))
            nll, kl = (totals.view(-1, 2).mean(0) / steps).tolist()
            logs.update(nll=nll, kl=kl, kl_weight=self.kl_schedule(max(0, self.state.global_step - 1)))
            self._logged.clear()
            self._last_logged_step = self.state.global_step
        super().log(logs, start_time)

    def _items(self, inputs: dict[str, Any]) -> int | None:
        """Over how many labels the model's loss is a mean; None if it has no labels."""
        if "labels" in inputs and "shift_labels" in inputs:
            return int(inputs["shift_labels"].ne(-100).sum())
        given = [inputs[name] for name in self.label_names if isinstance(inputs.get(name), Tensor)]
        if not given:
            return None
        shifts = getattr(self, "_loss_shifts_labels", False)
        return sum(int((labels[..., 1:] if shifts else labels).ne(-100).sum()) for labels in given)

    def _examples(self, inputs: dict[str, Any]) -> int:
        return next(value.shape[0] for value in inputs.values() if isinstance(value, Tensor) and value.dim())

    def _scale(self, items: int, num_items_in_batch: Tensor | int | None) -> float:
        """What a sum over this batch is multiplied by, so that the sums of a step add up to a mean over its items."""
        if num_items_in_batch is None:
            return 1.0 / (max(1, items) * self.current_gradient_accumulation_steps)
        processes = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        return processes / float(num_items_in_batch)


class _Tie(torch.autograd.Function):
    """The first tensor, unchanged, made to depend on the others: they are reachable from it, and get no gradient through it."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *terms: Tensor) -> Tensor:
        ctx.terms = len(terms)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (gradients[0], *(None,) * ctx.terms)


def _tie_to_output(output: Any, latents: Latents) -> Any:
    """Make the recorded KL reachable from a model's output."""
    terms = [term.kl for term in (*latents.local_terms, *latents.global_terms)]
    if isinstance(output, dict):
        name = next(name for name, value in output.items() if isinstance(value, Tensor) and value.requires_grad)
        output[name] = _Tie.apply(output[name], *terms)
        return output
    return (_Tie.apply(output[0], *terms), *output[1:])
