"""The training of one run: through accelerate, resumable at every epoch, and on one processor at every batch.

All randomness of an epoch is seeded by (seed, member, epoch, process), so that a checkpoint between two epochs needs no state
of any generator. One within an epoch has the state of torch's.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from bayesattn.experiments.methods import Method
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.runs.checkpoints import Checkpoints
from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.first_model import trained_first_models
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.experiments.runs.precision import InBfloat16
from bayesattn.experiments.runs.stopping import Stopping
from bayesattn.experiments.tasks import Splits, Task, Training
from bayesattn.experiments.tasks.base import Examples
from bayesattn.experiments.tasks.batching import by_length
from bayesattn.scopes.recording import record

VALIDATION_EXAMPLES = 1000
"""The validation loss of each epoch is taken on at most so many examples."""

OnEpoch = Callable[[dict[str, Any]], object]
OnBatch = Callable[[int, Tensor], object]
"""Takes how many batches of an epoch are done, and the sums of their losses."""


@dataclass
class Fitted:
    """Trained models, the processor seconds that it took over all resumptions, and those of one step (without validation)."""

    models: list[nn.Module]
    seconds: float
    seconds_per_step: float
    taken_over: dict[str, str] | None
    """The run that trained the first models, and its commit, where that was another one."""


def seed_of(*parts: object) -> int:
    """A seed from anything that can be printed."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


class Trainer:
    """Trains the members of one run, one after the other, and keeps checkpoints on the way."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        accelerator: Accelerator,
        checkpoints: Checkpoints,
        on_epoch: OnEpoch,
    ):
        self.config = config
        self.folder = folder
        self.accelerator = accelerator
        self.checkpoints = checkpoints
        self.on_epoch = on_epoch
        self.task: Task = config.make_task()
        self.method: Method = config.make_method()
        self.training: Training = config.training
        if self.task.point_estimate and (self.method.members > 1 or self.method.samples_dropout):
            raise ValueError(
                f"{config.task} is predicted by one model without noise, which {config.method} is not: "
                "take mle, an attention method such as bam-wc, or an objective such as variational-sampled."
            )

    def fit(self, splits: Splits) -> Fitted:
        """All members, from the last checkpoint if there is one."""
        train = _to_device(share(splits.train, self.training.train_share), self.accelerator.device)
        validation = _to_device(tuple(t[:VALIDATION_EXAMPLES] for t in splits.validation), self.accelerator.device)
        state = self.folder.read_checkpoint() or {"epoch": 0, "finished": [], "history": [], "seconds": 0.0}
        state.setdefault("step_seconds", state["seconds"])
        members = self.method.members
        steps = math.ceil(len(train[0]) / self.training.batch_size) * self.training.epochs
        if not state["history"]:
            self._take_over(state, steps)
        if self.accelerator.is_main_process:
            self.folder.write_history(state["history"])
        models = [self._restored(index, weights, train, state) for index, weights in enumerate(state["finished"])]
        while len(models) < members:
            models.append(self._fit_member(len(models), train, validation, state))
        return Fitted(models, state["seconds"], state["step_seconds"] / (steps * members), state.get("taken_over"))

    def _take_over(self, state: dict[str, Any], steps: int) -> None:
        """Begin with the first members where another run beside this one has trained them."""
        before = trained_first_models(self.config, self.folder.path.parent)
        if before is not None:
            state["finished"] += before.weights
            state["history"] += before.history
            state["seconds"] = before.seconds
            state["step_seconds"] = before.seconds_per_step * steps * len(before.weights)
            state["taken_over"] = {"run": before.run, "commit": before.commit}

    def _fit_member(self, member: int, train: Examples, validation: Examples, state: dict[str, Any]) -> nn.Module:
        base = self._fresh(member)
        optimiser = torch.optim.Adam(
            base.parameters(),
            lr=self.training.learning_rate,
            weight_decay=self.training.weight_decay,
            fused=self.training.fused or None,
        )
        stopping = None
        if self.training.patience is not None:
            stopping = Stopping(self.training.patience, **state.get("stopping", {}))
        if "model" in state:
            base.load_state_dict(state["model"])
            optimiser.load_state_dict(state["optimiser"])
        model, prepared = self.accelerator.prepare(base, optimiser)

        def running() -> dict[str, Any]:
            return state | {"model": base.state_dict(), "optimiser": optimiser.state_dict()}

        for epoch in range(state["epoch"], self.training.epochs):
            if stopping is not None and stopping.is_over:
                break
            start = time.process_time()
            torch.manual_seed(seed_of(self.config.seed, member, epoch, self.accelerator.process_index))
            self.method.start_epoch(base, epoch / self.training.epochs)
            done = state.pop("within", None)
            on_batch = functools.partial(self._after_batch, running, start)
            losses = self._epoch(model, prepared, member, epoch, train, done, on_batch)
            line = {"member": member, "epoch": epoch + 1} | losses
            state["step_seconds"] += time.process_time() - start
            self.method.after_epoch(base, (epoch + 1) / self.training.epochs)
            line |= self._validate(base, validation)
            if stopping is not None:
                if stopping.keeps(line["validation_nll"], line["validation_accuracy"]):
                    state["best"] = {key: value.clone() for key, value in base.state_dict().items()}
                state["stopping"] = {name: getattr(stopping, name) for name in ("nll", "accuracy", "waited")}
            state["seconds"] += time.process_time() - start
            line["seconds"] = round(state["seconds"], 3)
            state["history"].append(line)
            state["epoch"] = epoch + 1
            if self.accelerator.is_main_process:
                self.folder.append_history(line)
                self.checkpoints.after_epoch(running)
            self.on_epoch(line)
        self.accelerator.free_memory()
        if "best" in state:
            base.load_state_dict(state["best"])
        state["finished"].append(base.state_dict())
        state["epoch"] = 0
        for of_this_member in ("model", "optimiser", "stopping", "best"):
            state.pop(of_this_member, None)
        if self.accelerator.is_main_process:
            self.checkpoints.keep(state)
            self.checkpoints.stop_here()
        self._finish(base, train, state)
        return base

    def _after_batch(self, running: Callable[[], dict[str, Any]], start: float, batches: int, sums: Tensor) -> None:
        """A safe point within an epoch. Other devices and processes have generators of their own: there is none for them."""
        if self.accelerator.num_processes > 1 or self.accelerator.device.type != "cpu":
            return

        def state() -> dict[str, Any]:
            kept, spent = running(), time.process_time() - start
            times = {name: kept[name] + spent for name in ("seconds", "step_seconds")}
            return kept | times | {"within": {"batches": batches, "sums": sums, "random": torch.get_rng_state()}}

        self.checkpoints.after_batch(state)

    def _epoch(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        member: int,
        epoch: int,
        train: Examples,
        done: dict[str, Any] | None,
        on_batch: OnBatch,
    ) -> dict[str, float]:
        """One pass over the training examples, or the rest of it after what was `done`; the means of its losses."""
        size = len(train[0])
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed_of(self.config.seed, member, epoch)))
        batches = self._batches(train, order.to(self.accelerator.device))
        total = len(batches) * self.training.epochs
        sums = torch.zeros(3, device=self.accelerator.device)
        first = 0
        if done is not None:
            first = done["batches"]
            if self.accelerator.is_main_process:
                sums = done["sums"].to(sums.device)
            if self.accelerator.num_processes == 1:  # several draw noise of their own
                torch.set_rng_state(done["random"])
        precise = InBfloat16(model) if self.training.precision == "bf16" else model
        precise.train()
        for number, batch in enumerate(batches[first:], first):
            step = epoch * len(batches) + number
            for group in optimiser.param_groups:
                usual = rate(step, total, self.training)
                group["lr"] = self.training.learning_rate * self.method.learning_rate(usual, step / total)
            mine = batch[self.accelerator.process_index :: self.accelerator.num_processes]
            # a process without a part of a last, tiny batch takes a whole example all the same, at no weight
            examples = tuple(tensor[mine if len(mine) else batch[:1]] for tensor in train)
            with record() as latents:
                nll = self.method.nll(self.task, precise, examples)
            objective = self.method.objective(nll, latents, Progress(step, total), size)
            # the processes' gradients are averaged: weigh each by its share of the batch
            weight = len(mine) * self.accelerator.num_processes / len(batch)
            optimiser.zero_grad()
            self.accelerator.backward(objective.loss * weight)
            optimiser.step()
            parts = (objective.loss.detach(), objective.nll, objective.local_kl + objective.global_kl)
            sums += len(mine) * torch.stack(parts)
            if number + 1 < len(batches):
                on_batch(number + 1, sums)
        summed = cast(Tensor, self.accelerator.reduce(sums))
        loss, nll, kl = (summed / size).tolist()
        return {"loss": loss, "nll": nll, "kl": kl}

    def _batches(self, train: Examples, order: Tensor) -> Sequence[Tensor]:
        size = self.training.batch_size
        if not self.training.by_length:
            return self.task.batches(train, order, size)
        lengths = self.task.lengths(train)
        if lengths is None:
            raise ValueError(
                f"by_length=True: {self.config.task} has no texts to sort by length, or does so always. Take by_length=False."
            )
        return by_length(lengths, order, size)

    @torch.no_grad()
    def _validate(self, model: nn.Module, validation: Examples) -> dict[str, float]:
        """The figures of the point estimate, as means over the validation examples."""
        model.eval()
        parts = [
            self.task.validation(model, tuple(tensor[index] for tensor in validation))
            for index in torch.arange(len(validation[0])).split(self.training.batch_size)
        ]
        return {
            name: torch.stack([part[name].sum() for part in parts]).sum().item() / len(validation[0])
            for name in parts[0]
        }

    def _fresh(self, member: int) -> nn.Module:
        torch.manual_seed(seed_of(self.config.seed, member, "start"))
        return self.method.build(self.task).to(self.accelerator.device)

    def _restored(self, member: int, weights: dict[str, Tensor], train: Examples, state: dict[str, Any]) -> nn.Module:
        model = self._fresh(member)
        model.load_state_dict(weights)
        self._finish(model, train, state)
        return model

    def _finish(self, model: nn.Module, train: Examples, state: dict[str, Any]) -> None:
        start = time.process_time()
        self.method.finish(model, self.task, train)
        state["seconds"] += time.process_time() - start


def triangle(step: int, total: int, warmup: float) -> float:
    """The factor of the learning rate: linear to 1 in the first share `warmup` of the steps, then linear towards 0.

    >>> [round(triangle(step, 10, 0.2), 3) for step in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.125]
    """
    rising = round(warmup * total)
    return (step + 1) / rising if step < rising else (total - step) / (total - rising)


def rate(step: int, total: int, training: Training) -> float:
    """The factor of the learning rate in this training."""
    factor = triangle(step, total, training.warmup)
    return 1.0 if training.schedule == "constant" and step >= round(training.warmup * total) else factor


def share(examples: Examples, part: float) -> Examples:
    """A random part of the examples, the same for every run."""
    if part == 1.0:
        return examples
    size = len(examples[0])
    chosen = torch.randperm(size, generator=torch.Generator().manual_seed(0))[: max(1, round(part * size))]
    return tuple(tensor[chosen] for tensor in examples)


def _to_device(examples: Examples, device: torch.device) -> Examples:
    return tuple(tensor.to(device) for tensor in examples)
