"""Packed ensembles (Laurent et al. 2023): several narrow networks as one model, trained and asked in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesattn.nvib.layer import NVIB
from bayesattn.posteriors.base import Posterior
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.weight_space.together import Manner, Run, difference, run_all, stacked, with_tensors

_RANDOM = (modes.DrawsOnce, Posterior, NVIB)


class Packed(modes.RunsTogether, nn.Module):
    """Several networks of one kind whose parameters are stacked, [members, ...], under the names that they have in one of them.

    In training mode it gives the outputs of all members, [members, batch, ...], for each to have a loss of its own; in eval mode the
    mean of their outputs. `ba.predict(packed, x, samples=len(packed))` asks each member once, in one pass. Members never mix.
    """

    def __init__(self, networks: list[nn.Module]):
        super().__init__()
        _check(networks)
        self.members = len(networks)
        tensors = {name: tensor.detach().clone() for name, tensor in stacked(networks).items()}
        self.member = networks[0]
        """A network whose parameters are those of all members."""
        if not tensors:
            raise ValueError("The networks to pack share all of their parameters: build must make a new one each time.")
        for name, tensor in tensors.items():
            path, _, key = name.rpartition(".")
            module = self.member.get_submodule(path)
            before = module._parameters.get(key)
            if before is None:
                module._buffers[key] = tensor
            else:
                module._parameters[key] = nn.Parameter(tensor, before.requires_grad)
        self._stacked = {name: tensor.shape for name, tensor in tensors.items()}
        self.manner = Manner()

    def __len__(self) -> int:
        return self.members

    def network(self, index: int) -> nn.Module:
        """One of the members, with views of its parameters: to look at, calibrate, or ask alone. It is trained through the whole."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no member {index} of {len(self)}.")
        return with_tensors(self.member, {name: tensor[index] for name, tensor in self._tensors().items()})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if modes.is_sampling():
            return self.network(self._drawn())(*args, **kwargs)
        outputs = run_all(self.member, self._tensors(), lambda member: member(*args, **kwargs), self.manner)
        if self.training:
            return outputs
        return pytree.tree_map(lambda leaf: leaf.mean(0) if isinstance(leaf, Tensor) else leaf, outputs)

    def outputs_together(self, run: Run, samples: int) -> Any:
        if samples == 1:
            return None
        tensors = {name: tensor[:samples] for name, tensor in self._tensors().items()}
        return run_all(self.member, tensors, run, self.manner)

    def extra_repr(self) -> str:
        """How many members, and how they run."""
        return f"{self.members} members, {self.manner}"

    def _drawn(self) -> int:
        draw = modes.current_draw()
        if draw is not None:
            return draw.index % len(self)
        return int(torch.randint(len(self), (), generator=modes.current_generator()))

    def _tensors(self) -> dict[str, Tensor]:
        """The stacked parameters and buffers; what came after packing would be shared, or taken for something else."""
        now = {**dict(self.member.named_parameters()), **dict(self.member.named_buffers())}
        late = [name for name, tensor in now.items() if name not in self._stacked and tensor.requires_grad]
        late += [name for name, shape in self._stacked.items() if name not in now or now[name].shape != shape]
        late += [name for name, module in self.member.named_modules() if isinstance(module, _RANDOM)]
        if late:
            raise RuntimeError(
                f"{late[0]!r} is not what it was when the model was packed, which cannot be converted or have its layers replaced: "
                "build an ensemble instead (ba.weight_space.ensemble)."
            )
        hooked = [
            name for name, module in self.member.named_modules() if module._forward_hooks or module._forward_pre_hooks
        ]
        if hooked:
            raise RuntimeError(
                f"{hooked[0]!r} in a packed model has a hook, which would see all members at once. Ask a member alone: packed.network(0), "
                "also for the distance of ba.calibrate(..., train=...)."
            )
        return {name: now[name] for name in self._stacked}


def pack(build: Callable[[], nn.Module], members: int = 4) -> Packed:
    """`members` networks made by `build`, each from its own start, packed into one model that trains and predicts in one pass.

    For models that are trained from scratch: built narrow, as many cost what one of full width does, see `packed_width`. Any network
    of torch's layers serves; where `torch.vmap` cannot run it, members run one after another, and the repr says so and why.

    >>> import torch, bayesattn as ba
    >>> width = ba.weight_space.packed_width(32, members=4, heads=2)
    >>> def narrow():
    ...     layer = torch.nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True)
    ...     encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    ...     return torch.nn.Sequential(torch.nn.Linear(5, width), encoder, torch.nn.Linear(width, 3))
    >>> model = ba.weight_space.pack(narrow, members=4)
    >>> x, y = torch.randn(8, 7, 5), torch.randint(3, (8, 7))
    >>> logits = model(x)  # in training: of every member
    >>> loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.expand(len(model), 8, 7).flatten())
    >>> width, logits.shape, ba.predict(model, x, samples=len(model)).samples.shape
    (16, torch.Size([4, 8, 7, 3]), torch.Size([4, 8, 7, 3]))
    """
    return Packed([build() for _ in range(checks.whole("members", members, minimum=2))])


def packed_width(width: int, members: int = 4, heads: int = 1) -> int:
    """The width at which so many members have the matrix products of one network of `width`: width / √members, a multiple of `heads`.

    >>> packed_width(32, members=4), packed_width(384, members=4, heads=12), packed_width(64, members=2, heads=4)
    (16, 192, 44)
    """
    checks.whole("width", width)
    exact = width / math.sqrt(checks.whole("members", members)) / checks.whole("heads", heads)
    return heads * max(1, round(exact))


def _check(networks: list[nn.Module]) -> None:
    remedy = "Build an ensemble instead (ba.weight_space.ensemble)."
    for network in networks:
        for name, module in network.named_modules():
            what = f"{(name or 'the network')!r} is a {type(module).__name__}"
            if isinstance(module, _RANDOM):
                raise ValueError(f"{what}, which is random: its KL would count once for all members. {remedy}")
            if isinstance(module, nn.RNNBase):
                raise ValueError(
                    f"{what}, whose kernels keep their own copy of the weights: it cannot be packed. {remedy}"
                )
    if any(one is other for place, one in enumerate(networks) for other in networks[:place]):
        raise ValueError("build must make a new network each time, and gave one twice.")
    found = difference(networks)
    if found is not None:
        raise ValueError(f"The networks to pack are not of one kind: {found}.")
