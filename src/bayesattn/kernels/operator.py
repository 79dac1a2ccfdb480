"""The two operators that autograd, torch.compile and torch.export see, whatever the backend behind them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.nn import Parameter

from bayesattn.kernels import chunked, gpu, native
from bayesattn.kernels.call import DIFFERENTIABLE, SCHEMA, Call, Saved

_BACKENDS = {"chunked": chunked, "native": native, "triton": gpu}
_SAVED = "Tensor grad_output, Tensor grad_statistics, Tensor output, Tensor log_total, Tensor row_statistics"


@torch.library.custom_op("bayesattn::attention", mutates_args=(), schema=f"({SCHEMA}) -> (Tensor, Tensor, Tensor)")
def attention(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log total of the weights of each row, statistics of the scores of each row."""
    call = Call(*inputs)
    return _BACKENDS[call.backend].forward(call)


def attention_directly(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`attention`, past torch's dispatcher where nothing would happen in it, which takes as long as a small problem."""
    call = Call(*inputs)
    if call.backend == "native" and _nobody_listens(call):
        return native.forward(call)
    return attention(*inputs)


def _nobody_listens(call: Call) -> bool:
    """Whether the tensors are plain ones, without gradients, and no compiler, tracer, mode or transform is at work."""
    if (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or peek_interpreter_stack() is not None
    ):
        return False
    tensors = [value for value in call if isinstance(value, Tensor)]
    with_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return not with_gradient and all(type(tensor) in (Tensor, Parameter) for tensor in tensors)


@attention.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return Call(*inputs).empty_results()


@torch.library.custom_op(
    "bayesattn::attention_backward",
    mutates_args=(),
    schema=f"({_SAVED}, {SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def attention_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Gradients of `DIFFERENTIABLE`."""
    saved, call = Saved(*inputs[:5]), Call(*inputs[5:])
    return _BACKENDS[call.backend].backward(saved, call)


@attention_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    return Call(*inputs[5:]).zero_gradients()


def _refuse_second_derivative(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError(
        "The kernels of attention have no second derivative (create_graph=True, a Hessian, a gradient penalty): use plain torch, "
        "ba.attend(..., backend='reference'), or `with ba.kernels.use(backend='reference'):` around the forward pass."
    )


attention_backward.register_autograd(_refuse_second_derivative)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    ctx.places = [index for index, value in enumerate(inputs) if isinstance(value, Tensor)]
    ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_output: Tensor | None, _: Any, grad_statistics: Tensor | None) -> tuple[Any, ...]:
    output, log_total, statistics, *tensors = ctx.saved_tensors
    inputs = list(ctx.others)
    for place, tensor in zip(ctx.places, tensors, strict=True):
        inputs[place] = tensor
    call = Call(*inputs)
    if call.samples != 1:
        raise NotImplementedError("Gradients through shared samples are not computed: use samples=1 with gradients on.")
    gradients = attention_backward(
        torch.zeros_like(output) if grad_output is None else grad_output,
        torch.zeros_like(statistics) if grad_statistics is None else grad_statistics,
        output,
        log_total,
        statistics,
        *inputs,
    )
    named = dict(zip(DIFFERENTIABLE, gradients, strict=True))
    return tuple(
        named[name] if name in named and value is not None else None
        for name, value in zip(Call._fields, inputs, strict=True)
    )


attention.register_autograd(_differentiate, setup_context=_remember)


@attention.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    """Samples of one problem share its scores; problems that differ are folded into one batch.

    Either way their noise is that of the first seed, at other examples.
    """
    count, call = info.batch_size, Call(*inputs)
    differing = {name: place for name, place in zip(Call._fields, in_dims, strict=True) if place is not None}
    if call.samples != 1:
        raise NotImplementedError("vmap over an attention that shares samples already: use samples=1.")
    if call.seed is not None:
        if "seed" not in differing:
            raise NotImplementedError("vmap over attention with the same noise: use randomness='different'.")
        call = call._replace(seed=call.seed.select(differing.pop("seed"), 0))
    if not differing:
        output, log_total, statistics = attention(*call._replace(samples=count))
        return (*(tensor.unflatten(0, (count, -1)) for tensor in (output, log_total)), statistics), (0, 0, None)
    batch = call.key.shape[1 if differing.get("key") == 0 else 0]

    def fold(name: str, tensor: Tensor) -> Tensor:
        if name in differing:
            tensor = tensor.movedim(differing[name], 0)
        elif tensor.shape[0] == 1 and batch != 1:  # a mask of all examples
            return tensor
        else:
            tensor = tensor.unsqueeze(0)
        return tensor.expand(count, batch, *tensor.shape[2:]).flatten(0, 1)

    folded = {
        name: fold(name, tensor)
        for name, tensor in call._asdict().items()
        if isinstance(tensor, Tensor) and name != "seed"
    }
    output, log_total, statistics = attention(*call._replace(**folded))
    apart = (output.unflatten(0, (count, batch)), log_total.unflatten(0, (count, batch)))
    return (*apart, statistics.unflatten(1, (count, batch))), (0, 0, 1)
