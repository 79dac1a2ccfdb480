"""Deep ensembles (Lakshminarayanan et al. 2017): several networks, each from its own start; the prediction is their mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.weight_space.selection import Where, choose_layers
from bayesattn.weight_space.together import Manner, Run, mean_output, obstacle, run_all, stacked


class Ensemble(modes.RunsTogether, nn.Module):
    """Several networks as one. A sample is one of them: `ba.predict(ensemble, x, samples=len(ensemble))` asks each once.

    In eval mode without sampling it gives the mean of their outputs. It is trained member by member: `for member in ensemble:`.
    """

    def __init__(self, members: Sequence[nn.Module], *, together: bool | None = None):
        super().__init__()
        if not members:
            raise ValueError("An ensemble needs at least one member.")
        self.members = nn.ModuleList(members)
        self.together = together
        self.manner = Manner()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.members)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if modes.is_sampling():
            return self._drawn()(*args, **kwargs)
        if self.training:
            raise RuntimeError(
                "An ensemble is trained member by member: `for member in ensemble:`, and add their losses if they share parameters."
            )
        return mean_output([member(*args, **kwargs) for member in self.members])

    def outputs_together(self, run: Run, samples: int) -> Any:
        if not self._goes_together() or samples == 1 or len(self) == 1:
            return None
        members = list(self.members)[:samples]
        self.manner.obstacle = obstacle(members)
        if self.manner.obstacle is not None:
            return None
        tensors = stacked(members)
        if not tensors:  # the members are one
            return None
        return run_all(members[0], tensors, run, self.manner, members)

    def extra_repr(self) -> str:
        """How the members predict."""
        return f"members run {self.manner if self._goes_together() else 'one after another'}"

    def _goes_together(self) -> bool:
        if self.together is not None:
            return self.together
        return any(parameter.device.type != "cpu" for parameter in self.parameters())

    def _drawn(self) -> nn.Module:
        draw = modes.current_draw()
        if draw is not None:
            return self.members[draw.index % len(self)]
        return self.members[int(torch.randint(len(self), (), generator=modes.current_generator()))]


def ensemble(
    build: Callable[[], nn.Module], n: int = 5, *, where: Where = None, together: bool | None = None
) -> Ensemble:
    """`n` networks made by `build`, each from its own start.

    With `where` only the chosen layers differ: all other parameters are those of the first member, shared. Then add up the members'
    losses in training.

    Args:
        build: makes a network.
        n: how many.
        where: which layers are each member's own, see `choose_layers`.
        together: whether `ba.predict` runs the members in one pass (`torch.vmap`): the same numbers, with all members' activations and
            a second copy of their parameters in memory. By default on a GPU and not on a processor, where it is no faster. Members
            that cannot (random ones, hooks, branches on the data, …) run one after another; the ensemble's repr says which it was.

    >>> import torch, bayesattn as ba
    >>> members = ba.weight_space.ensemble(lambda: torch.nn.Linear(3, 2), n=4)
    >>> for member in members:
    ...     pass  # train it
    >>> ba.predict(members, torch.randn(5, 3), samples=len(members)).mutual_information.shape
    torch.Size([5])
    """
    members = [build() for _ in range(checks.whole("n", n))]
    if where is not None:
        first = members[0]
        own = choose_layers(first, where)
        modules = dict(first.named_modules())
        for member in members[1:]:
            for name, module in member.named_modules():
                if name not in own:
                    for key, _ in list(module.named_parameters(recurse=False)):
                        setattr(module, key, modules[name].get_parameter(key))
    return Ensemble(members, together=together)
