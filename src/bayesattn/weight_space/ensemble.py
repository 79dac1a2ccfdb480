"""Deep ensembles (Lakshminarayanan et al. 2017): several networks, each from its own start; the prediction is their mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.weight_space.selection import Where, choose_layers


class Ensemble(modes.DrawsOnce, nn.Module):
    """Several networks as one. A sample is one of them: `ba.predict(ensemble, x, samples=len(ensemble))` asks each once.

    In eval mode without sampling it gives the mean of their outputs. It is trained member by member: `for member in ensemble:`.
    """

    def __init__(self, members: Sequence[nn.Module]):
        super().__init__()
        if not members:
            raise ValueError("An ensemble needs at least one member.")
        self.members = nn.ModuleList(members)

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
        outputs = [member(*args, **kwargs) for member in self.members]
        return pytree.tree_map(
            lambda *parts: torch.stack(parts).mean(0) if isinstance(parts[0], torch.Tensor) else parts[0], *outputs
        )

    def _drawn(self) -> nn.Module:
        draw = modes.current_draw()
        if draw is not None:
            return self.members[draw.index % len(self)]
        return self.members[int(torch.randint(len(self), (), generator=modes.current_generator()))]


def ensemble(build: Callable[[], nn.Module], n: int = 5, *, where: Where = None) -> Ensemble:
    """`n` networks made by `build`, each from its own start.

    With `where` only the chosen layers differ: all other parameters are those of the first member, shared. Then add up the members'
    losses in training.

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
    return Ensemble(members)
