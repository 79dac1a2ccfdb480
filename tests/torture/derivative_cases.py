"""Generated cases of other derivatives than those of one backward pass: each agrees with that pass, or is refused in words."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import bayesattn as ba
from helpers.posterior_cases import FORMS
from torture.attention_cases import Case, Tally, Wrong, expect, seed, tally_of

__all__ = ["KINDS", "DerivativeCase", "Wrong", "check", "torture"]

KINDS = ("jvp", "dual", "grad", "vjp of jvp", "vmap", "second", "checkpoint", "reentrant checkpoint")


@dataclass(frozen=True)
class DerivativeCase:
    """One derivative of one call of attention, decided by its number."""

    number: int
    kind: str
    call: Case

    @classmethod
    def of(cls, number: int) -> DerivativeCase:
        """The case of this number."""
        pick = random.Random(number)
        kind, posterior = pick.choice(KINDS), pick.choice(sorted(FORMS))
        call = replace(
            Case.of(number), posterior=posterior, way="attend", dtype=torch.float64, scale=1.0, poisoned=None
        )
        call = replace(
            call, queries=min(call.queries, 12), keys=min(call.keys, 12)
        )  # some forms have no more positions
        if kind == "vmap":
            call = replace(call, mode="eval")  # all examples of a vmap have one noise, or one for each
        return cls(number, kind, call)

    @property
    def draws_gammas(self) -> bool:
        """Gamma draws have no second derivative, and one that is not that of the draws at fixed numbers."""
        form = FORMS[self.call.posterior]
        return isinstance(form, ba.Dirichlet) and not form.approximate and self.call.mode != "eval"


def check(case: DerivativeCase) -> None:
    """Run the case; raise `Wrong` with what is not as it should be."""
    seed(case.number)
    shapes = [(case.call.heads, case.call.queries), (case.call.key_heads, case.call.keys)]
    query, key = (torch.randn(case.call.batch, *shape, case.call.features, dtype=torch.float64) for shape in shapes)
    leaf = torch.cat([query.flatten(), key.flatten()])
    run = _attention(case.call, query.shape, key.shape)
    cotangent, direction = torch.randn_like(run(leaf)), torch.randn_like(leaf)
    expected = _gradient(run, leaf, cotangent)
    along = (expected * direction).sum()
    if case.kind == "jvp":
        _expect_close((torch.func.jvp(run, (leaf,), (direction,))[1] * cotangent).sum(), along, "jvp")
    elif case.kind == "dual":
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(run(forward_ad.make_dual(leaf, direction))).tangent
            expect(tangent is not None, "the tangent is lost")
            _expect_close((tangent * cotangent).sum(), along, "the dual tensor's derivative")
    elif case.kind == "grad":
        _expect_close(torch.func.grad(lambda x: (run(x) * cotangent).sum())(leaf), expected, "torch.func.grad")
    elif case.kind == "vjp of jvp":
        _expect_second(
            case,
            lambda: torch.func.grad(_derivative_along(run, cotangent, direction))(leaf),
            run,
            leaf,
            cotangent,
            direction,
        )
    elif case.kind == "vmap":
        several = torch.stack([leaf, leaf + direction]).requires_grad_()
        (found,) = torch.autograd.grad((torch.vmap(run)(several) * cotangent).sum(), several)
        _expect_close(found[0], expected, "a gradient inside vmap")
    elif case.kind == "second":
        with ba.kernels.use(backend="reference"):
            plain = _attention(replace(case.call, backend="auto"), query.shape, key.shape)
            _expect_second(case, lambda: _second(plain, leaf, cotangent, direction), plain, leaf, cotangent, direction)
        if (
            case.call.backend == "chunked"
            and ba.kernels.explain(query, key, key, _bound(case.call), backend="chunked").backend == "chunked"
        ):
            _expect_refused(lambda: _second(run, leaf, cotangent, direction))
    else:
        _check_checkpointed(case, leaf, query.shape, key.shape)


def _check_checkpointed(case: DerivativeCase, x: Tensor, *shapes: torch.Size) -> None:
    """Two calls that draw from one generator, with and without checkpointing."""
    gradients, states = [], []
    for repeated in (False, True):
        generator = torch.Generator().manual_seed(case.number)
        run, leaf = _attention(case.call, *shapes, generator), x.clone().requires_grad_()
        for _ in range(2):
            output = checkpoint(run, leaf, use_reentrant=case.kind.startswith("reentrant")) if repeated else run(leaf)
            output.square().sum().backward()  # pyright: ignore
        gradients.append(leaf.grad)
        states.append(generator.get_state())
    expect(torch.equal(*gradients), "the checkpointed gradient is another")
    expect(torch.equal(*states), "checkpointing leaves the generator in another state")


def _bound(call: Case) -> ba.Posterior:
    with torch.random.fork_rng(devices=[]):
        seed(call.number)
        posterior = FORMS[call.posterior].bind(num_heads=call.heads, head_dim=call.features)
    return posterior.double().train(call.mode == "train")


def _attention(
    call: Case, query_shape: torch.Size, key_shape: torch.Size, given: torch.Generator | None = None
) -> Callable[[Tensor], Tensor]:
    """Output and KL as a function of one vector, with the same noise in every call; the output alone from a generator that is given."""
    posterior = _bound(call)
    with torch.random.fork_rng(devices=[]):
        seed(call.number)
        mask = torch.rand(call.batch, 1, call.queries, call.keys) < 0.7 if "boolean" in call.mask else None

    def run(x: Tensor) -> Tensor:
        query, key = x[: query_shape.numel()].view(query_shape), x[query_shape.numel() :].view(key_shape)
        generator = given or torch.Generator().manual_seed(call.number)
        with ba.record() as latents:
            arguments: dict = {"is_causal": "causal" in call.mask, "enable_gqa": True, "backend": call.backend}
            if call.mode == "sampling":
                with ba.sampling(generator):
                    output = ba.attend(query, key, key, posterior, mask, **arguments)
            else:
                output = ba.attend(query, key, key, posterior, mask, generator=generator, **arguments)
        return output.flatten() if given else torch.cat([output.flatten(), latents.local_kl * 1e-3])

    return run


def _gradient(run: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad((run(leaf) * cotangent).sum(), leaf)[0]


def _second(run: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor, direction: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((run(leaf) * cotangent).sum(), leaf, create_graph=True)
    if not gradient.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad((gradient * direction).sum(), leaf)[0]


def _derivative_along(
    run: Callable[[Tensor], Tensor], cotangent: Tensor, direction: Tensor
) -> Callable[[Tensor], Tensor]:
    return lambda x: (torch.func.jvp(run, (x,), (direction,))[1] * cotangent).sum()


def _expect_second(
    case: DerivativeCase,
    second: Callable[[], Tensor],
    run: Callable[[Tensor], Tensor],
    x: Tensor,
    cotangent: Tensor,
    direction: Tensor,
) -> None:
    """The Hessian times `direction`, against differences of gradients."""
    if case.draws_gammas:
        _expect_refused(second)
        return
    step = 1e-6
    ahead, behind = (_gradient(run, x + sign * step * direction, cotangent) for sign in (1.0, -1.0))
    _expect_close(second(), (ahead - behind) / (2 * step), "the second derivative", rtol=1e-3)


def _expect_refused(function: Callable[[], object]) -> None:
    try:
        function()
    except NotImplementedError as refused:
        expect("second derivative" in str(refused), f"it is refused with {refused}")
    else:
        expect(False, "a second derivative that is not right is not refused")


def _expect_close(found: Tensor, expected: Tensor, what: str, rtol: float = 1e-6) -> None:
    scale = 1.0 + expected.abs().max()
    expect(
        bool(((found - expected).abs() <= rtol * scale).all()),
        f"{what} is off by {(found - expected).abs().max() / scale:.2g}",
    )


def torture(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Check all these cases."""
    return tally_of(cases, DerivativeCase.of, check, tick)
