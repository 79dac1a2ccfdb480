"""Several networks of one kind: all of them in one pass where torch can, else one after another, and which of both it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesattn.nvib.layer import NVIB
from bayesattn.posteriors.base import Posterior
from bayesattn.scopes import modes
from bayesattn.support.replica import altered
from bayesattn.support.vectorised import Grouped, without_loops

Network = TypeVar("Network", bound=nn.Module)
Run = Callable[[nn.Module], Any]
"""What is asked of one network; gives tensors."""


class Manner:
    """How the networks run: known after they have. The copies of a module that predict share it."""

    def __init__(self) -> None:
        self.works = False
        """Whether they have run in one pass."""
        self.failure: str | None = None
        """Why that failed when it was tried; it is not tried again."""
        self.obstacle: str | None = None
        """What stood in the way the last time, and may be gone the next time."""

    def __str__(self) -> str:
        why = self.obstacle or self.failure
        return "in one pass" if why is None else f"one after another ({why})"


def run_all(
    template: nn.Module,
    tensors: Mapping[str, Tensor],
    run: Run,
    manner: Manner,
    networks: Sequence[nn.Module] | None = None,
) -> Any:
    """What `run` says of each network, stacked: of `template` with the first of all `tensors`, with the second …

    Args:
        template: a network of this kind.
        tensors: name of a parameter or buffer → its values in all networks, [networks, ...].
        run: is called once, with tensors under `torch.vmap`; or where that fails, once for each network.
        manner: is told which. What failed once is not tried again.
        networks: the networks themselves, where there are such. They are compared with what the template gives in their stead, once;
            where that is not the same it counts as failed.
    """

    def one_by_one() -> Any:
        return _stacked_outputs([run(each) for each in networks or _separate(template, tensors)])

    if manner.failure is None:
        try:
            if manner.works:
                return _in_one_pass(template, tensors, run)
            with without_loops():
                made = _in_one_pass(template, tensors, run)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            # an operation that vmap does not know, a branch that depends on the data, or an error of the network's own, which the
            # networks meet again one by one and raise
            made = one_by_one()
            manner.failure = str(problem).strip().split("\n")[0][:200] or type(problem).__name__
            return made
        if networks is not None:
            apart = one_by_one()
            if not _same(made, apart):
                manner.failure = "their outputs are others in one pass"
                return apart
        manner.works = True
        return made
    return one_by_one()


def with_tensors(template: Network, tensors: Mapping[str, Tensor], vectorised: bool = False) -> Network:
    """The network with these tensors for its parameters and buffers; the network itself stays as it is.

    A `vectorised` one does without the fast paths of torch's layers, which vmap does not know.
    """
    changes: dict[nn.Module, dict[str, Any]] = {}
    for module, names in _owners(template).items():
        own = {key: tensors[name] for key, name in names.items() if name in tensors}
        if own:
            changes[module] = own
    for module in template.modules() if vectorised else ():
        if isinstance(module, nn.TransformerEncoderLayer):
            changes.setdefault(module, {})["activation_relu_or_gelu"] = 0
        elif isinstance(module, nn.TransformerEncoder):
            changes.setdefault(module, {})["use_nested_tensor"] = False
        elif not module.training and type(module).forward is nn.MultiheadAttention.forward:
            changes.setdefault(module, {}).update(training=True, dropout=0.0)  # the same, by the usual path
    made: Any = altered(template, changes)
    return made


def stacked(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The parameters and buffers of networks of one kind, [networks, ...]. What all share, and counters that agree, are left out."""
    states = [{**dict(each.named_parameters()), **dict(each.named_buffers())} for each in networks]
    found: dict[str, Tensor] = {}
    for name, first in states[0].items():
        values = [state[name] for state in states]
        shared = all(value is first for value in values)
        agreed = not first.is_floating_point() and all(torch.equal(value, first) for value in values)
        if not (shared or agreed):
            found[name] = torch.stack(values)
    return found


def difference(networks: Sequence[nn.Module]) -> str | None:
    """Why these networks are not of one kind, so that one cannot stand in for another with its tensors; None if they are."""
    first = _description(networks[0])
    for network in networks[1:]:
        other = _description(network)
        if other != first:
            names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
            return f"they differ in {(names[0] or type(networks[0]).__name__)!r}"
    return None


def obstacle(networks: Sequence[nn.Module]) -> str | None:
    """What makes it wrong to run these networks as one, as far as can be told without running them."""
    for network in networks:
        for name, module in network.named_modules():
            if isinstance(module, (modes.DrawsOnce, Posterior, NVIB)):
                return f"{(name or 'a member')!r} is random"
            if isinstance(module, nn.RNNBase):
                return f"{(name or 'a member')!r} is a {type(module).__name__}, whose kernels keep their own copy of the weights"
            if isinstance(module, torch.jit.ScriptModule):
                return f"{(name or 'a member')!r} is a scripted module"
            if module.training:
                return f"{(name or 'a member')!r} is in training mode"
            if module._forward_hooks or module._forward_pre_hooks:
                return f"{(name or 'a member')!r} has hooks"
    return difference(networks)


def mean_output(outputs: Sequence[Any]) -> Any:
    """The mean of the tensors that several networks returned; all else is the first's."""
    return pytree.tree_map(
        lambda *parts: torch.stack(parts).mean(0) if isinstance(parts[0], Tensor) else parts[0], *outputs
    )


def _in_one_pass(template: nn.Module, tensors: Mapping[str, Tensor], run: Run) -> Any:
    def of_one(values: dict[str, Tensor]) -> Any:
        return run(with_tensors(template, values, vectorised=True))

    with Grouped():
        return torch.vmap(of_one, randomness="different")(dict(tensors))


def _separate(template: nn.Module, tensors: Mapping[str, Tensor]) -> list[nn.Module]:
    count = len(next(iter(tensors.values())))
    return [with_tensors(template, {name: each[index] for name, each in tensors.items()}) for index in range(count)]


def _stacked_outputs(outputs: Sequence[Any]) -> Any:
    return pytree.tree_map(lambda *parts: torch.stack(parts) if isinstance(parts[0], Tensor) else parts[0], *outputs)


def _same(made: Any, apart: Any) -> bool:
    pairs = zip(pytree.tree_leaves(made), pytree.tree_leaves(apart), strict=True)
    return all(
        torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        for one, other in pairs
        if isinstance(one, Tensor)
    )


def _owners(network: nn.Module) -> dict[nn.Module, dict[str, str]]:
    """Module → attribute → the name of the parameter or buffer that it is; tied ones have the name of the first."""
    first: dict[int, str] = {}
    found: dict[nn.Module, dict[str, str]] = {}
    for prefix, module in network.named_modules():
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                name = first.setdefault(id(tensor), f"{prefix}.{key}" if prefix else key)
                found.setdefault(module, {})[key] = name
    return found


def _description(network: nn.Module) -> dict[str, Any]:
    """Module by module: its class, its plain attributes, its tensors' shapes, types and ties."""
    names = _owners(network)
    return {
        name: (
            type(module),
            {
                key: value
                for key, value in vars(module).items()
                if isinstance(value, (int, float, str)) and key != "training"
            },
            {
                key: (tensor.shape, tensor.dtype, tensor.device, names[module][key])
                for key, tensor in (*module._parameters.items(), *module._buffers.items())
                if tensor is not None
            },
        )
        for name, module in network.named_modules()
    }
