"""Generated cases of attention: a number decides posterior, sizes, masks, dtype, scale, mode, way in and backend.

A tenth of them have a number somewhere that is none, or infinite: there, NaN must be where `reference` has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.kernels import Backend
from helpers.posterior_cases import EXTREMES, FORMS, MAX_LEN

POSTERIORS = FORMS | EXTREMES
WAYS = ("attend", "module", "converted")
MODES = ("train", "eval", "sampling")
MASKS = ("none", "boolean", "additive", "causal", "boolean and causal", "lengths", "nothing allowed")
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
SCALES = (1.0, 1.0, 1e-4, 30.0, 1e3)
seed = torch.default_generator.manual_seed
"""Of the processor's noise alone: `torch.manual_seed` would also seed devices that are not there, which takes as long as a case."""
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "chunked", "native")


POISONS = (float("nan"), float("nan"), float("inf"), float("-inf"))
POISONED = ("query", "key", "value", "bias", "parameter", "gradient")


@dataclass(frozen=True)
class Case:
    """One call of attention, decided by its number."""

    number: int
    posterior: str
    way: str
    mode: str
    mask: str
    dtype: torch.dtype
    scale: float
    backend: Backend
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    features: int
    poisoned: str | None = None
    """What has a number in it that is not finite."""
    poison: float = 0.0
    dropout: float = 0.0

    @classmethod
    def of(cls, number: int) -> Case:
        """The case of this number."""
        pick = random.Random(number)
        way = pick.choice(WAYS)
        key_heads = pick.choice((1, 2, 3))
        mask = pick.choice(MASKS)
        keys = pick.randint(1, MAX_LEN)
        posterior, dtype = pick.choice(sorted(POSTERIORS)), pick.choice(DTYPES)
        if posterior == "gaussian-sigma=1e+15" and way != "attend" and dtype == torch.float16:
            dtype = torch.float32  # float16 cannot hold the parameter of this posterior
        case = cls(
            number=number,
            posterior=posterior,
            way=way,
            mode=pick.choice(MODES),
            mask=mask,
            dtype=dtype,
            scale=pick.choice(SCALES),
            backend=pick.choice(BACKENDS),
            batch=pick.choice((1, 2, 3)),
            heads=key_heads * (pick.choice((1, 2)) if way == "attend" else 1),
            key_heads=key_heads,
            queries=keys if way == "converted" else pick.randint(1, MAX_LEN),
            keys=keys,
            features=pick.choice((1, 3, 8, 16)),
        )
        if pick.random() >= 0.1:
            return case
        longest = MAX_LEN if "thesis" in posterior else 150  # several tiles of a kernel
        keys = pick.randint(1, longest)
        return replace(
            case,
            mask=pick.choice(("additive", "additive and causal"))
            if (place := pick.choice(POISONED)) == "bias"
            else mask,
            keys=keys,
            queries=keys if way == "converted" else pick.randint(1, longest),
            poisoned=place,
            poison=pick.choice(POISONS),
            dropout=pick.choice((0.0, 0.0, 0.3)),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        if self.way == "attend":
            return (self.batch, self.heads, self.queries, self.features)
        return (self.batch, self.queries, self.heads * self.features)


class Wrong(AssertionError):
    """A case that did not behave."""


def check(case: Case) -> None:
    """Run the case; raise `Wrong` with what is not as it should be."""
    if case.poisoned is not None:
        _check_poisoned(case)
        return
    seed(case.number)
    run = _attend if case.way == "attend" else _module
    allowed = _allowed(case)
    inputs = _inputs(case)
    output, kl = run(case, inputs, allowed)
    expect(output.shape == case.shape, f"the output has shape {tuple(output.shape)}")
    expect(output.dtype == case.dtype, f"the output is {output.dtype}")
    expect(bool(output.isfinite().all()), "the output is not finite")
    expect(kl.shape == (case.batch,), f"the KL has shape {tuple(kl.shape)}")
    expect(bool(kl.isfinite().all()), "the KL is not finite")
    if case.mode == "train":
        gradients = _gradients(output, kl, inputs)
        if case.dtype == torch.float16 and not all(bool(g.isfinite().all()) for g in gradients):
            # a gradient beyond float16's largest number is infinite there, and rightly so: look at it in float32
            single = [each.detach().float().requires_grad_() for each in inputs]
            gradients = _gradients(*run(replace(case, dtype=torch.float32), single, allowed), single)
            largest = max(g.abs().max().item() for g in gradients)
            expect(largest > torch.finfo(torch.float16).max, "a gradient that float16 can hold is not finite")
        expect(all(bool(g.isfinite().all()) for g in gradients), "a gradient is not finite")
    _expect_no_leak(case, run, inputs, output, allowed)


def _check_poisoned(case: Case) -> None:
    """The output is NaN where it is in `reference`. KL and gradients hide no NaN of it, and have none in an example that is finite there.

    Sums of a row, which the kernels' KL is made of, are NaN as a whole; and where a half's weight is 0, float32's is 1e-10: infinity
    times the one is NaN, times the other infinity.
    """
    ours, theirs = (_everything(replace(case, backend=backend)) for backend in (case.backend, "reference"))
    sick = torch.stack([~each.isfinite().flatten(1).all(1) for each in theirs.values()]).any(0)
    sick |= case.poisoned == "parameter"  # of all examples
    for name, expected in theirs.items():
        found = ours[name]
        expect(not (found.isfinite() & expected.isnan()).any(), f"{name} hides what is NaN in reference")
        expect(
            not found.isnan().flatten(1).any(1)[~sick].any(), f"{name} is NaN in an example that is finite in reference"
        )
        if name == "output":
            same = torch.equal(found.isfinite(), expected.isfinite())
            if case.dtype in (torch.float32, torch.float64):
                same &= torch.equal(found.isnan(), expected.isnan())
            expect(same, "the output is NaN at other places than in reference")


def _everything(case: Case) -> dict[str, Tensor]:
    """All that a case gives, by name."""
    seed(case.number)
    inputs, allowed = _inputs(case), _allowed(case)
    if case.poisoned in NAMES:
        flat = inputs[NAMES.index(case.poisoned)].detach().view(-1)
        flat[torch.randint(len(flat), (1,))] = case.poison
    output, kl = (_attend if case.way == "attend" else _module)(case, inputs, allowed)
    found = {"output": output.detach(), "kl": kl.detach()[:, None]}
    if case.mode == "train":
        upstream = torch.ones(output.shape, dtype=output.dtype)
        if case.poisoned == "gradient":
            upstream.view(-1)[torch.randint(output.numel(), (1,))] = case.poison
        total = (output * upstream).sum() + kl.sum()
        gradients = torch.autograd.grad(total, inputs, allow_unused=True)
        found |= {f"gradient of {n}": g for n, g in zip(NAMES, gradients, strict=True) if g is not None}
    return found


def _poison_a_parameter(case: Case, module: nn.Module) -> None:
    parameters = [each for each in module.parameters() if each.numel()]
    if case.poisoned == "parameter" and parameters:
        pick = random.Random(-case.number)
        flat = pick.choice(parameters).detach().view(-1)
        flat[pick.randrange(len(flat))] = case.poison


def _bias(case: Case, allowed: Tensor) -> Tensor:
    bias = torch.zeros(allowed.shape, dtype=case.dtype).masked_fill(~allowed, float("-inf"))
    if case.poisoned == "bias":
        bias.view(-1)[random.Random(case.number).randrange(bias.numel())] = case.poison
    return bias


def _gradients(output: Tensor, kl: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    total = output.double().sum() + kl.double().sum()
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros(1) if each is None else each for each in found]


def expect(holds: bool, words: str) -> None:
    if not holds:
        raise Wrong(words)


NAMES = ("query", "key", "value")


def _inputs(case: Case) -> list[Tensor]:
    def drawn(heads: int, length: int, scale: float) -> Tensor:
        return (torch.randn(case.batch, heads, length, case.features) * scale).to(case.dtype).requires_grad_()

    return [
        drawn(case.heads, case.queries, case.scale),
        drawn(case.key_heads, case.keys, 1.0),
        drawn(case.key_heads, case.keys, 1.0),
    ]


def _allowed(case: Case) -> Tensor:
    """[batch, 1, query, key]: what may be attended to, whatever form the mask has."""
    shape = (case.batch, 1, case.queries, case.keys)
    allowed = torch.ones(shape, dtype=torch.bool)
    if case.mask in ("boolean", "additive", "boolean and causal", "additive and causal"):
        allowed &= torch.rand(shape) < 0.7
    if "causal" in case.mask:
        allowed &= torch.ones(case.queries, case.keys, dtype=torch.bool).tril()
    if case.mask == "lengths":
        allowed &= torch.arange(case.keys) < torch.randint(0, case.keys + 1, (case.batch, 1, 1, 1))
    if case.mask == "nothing allowed":
        allowed &= False
    return allowed


def _attend(case: Case, inputs: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        seed(case.number)  # the same parameters in every run of the case
        posterior = POSTERIORS[case.posterior].bind(num_heads=case.heads, head_dim=case.features)
    posterior.train(case.mode == "train")
    _poison_a_parameter(case, posterior)
    arguments: dict = {"is_causal": "causal" in case.mask, "backend": case.backend, "enable_gqa": True}
    arguments["dropout_p"] = case.dropout if posterior.counter_noise else 0.0
    if "additive" in case.mask:
        arguments["attn_mask"] = _bias(case, allowed)
    elif case.mask == "lengths":
        arguments["key_lengths"] = allowed[:, 0, 0].sum(-1)
    elif case.mask != "none":
        arguments["attn_mask"] = allowed

    def call() -> Tensor:
        return ba.attend(*inputs, posterior, generator=torch.Generator().manual_seed(case.number), **arguments)

    return _recorded(case, call)


def _module(case: Case, inputs: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Through `ba.nn.MultiheadAttention`, or torch's own converted."""
    width = case.heads * case.features
    with torch.random.fork_rng(devices=[]):
        seed(case.number)
        if case.way == "module":
            posterior = POSTERIORS[case.posterior]
            layer: nn.Module = ba.nn.MultiheadAttention(width, case.heads, batch_first=True, posterior=posterior)
        else:
            layer = nn.ModuleList([nn.MultiheadAttention(width, case.heads, batch_first=True)])
            layer = ba.convert(layer, POSTERIORS[case.posterior])[0]
    layer = layer.to(case.dtype).train(case.mode == "train")
    _poison_a_parameter(case, layer)
    query, key, value = (each.transpose(1, 2).flatten(2) for each in inputs)
    whole = (case.batch, case.heads, case.queries, case.keys)
    additive = case.poisoned == "bias"
    blocked = (_bias(case, allowed) if additive else ~allowed).expand(whole).flatten(0, 1)

    def call() -> Tensor:
        with torch.random.fork_rng(devices=[]):
            seed(case.number)
            return layer(query, key, value, attn_mask=None if case.mask == "none" else blocked, need_weights=False)[0]

    return _recorded(case, call)


def _recorded(case: Case, call: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    with ba.record() as latents, ba.kernels.use(backend=case.backend):
        if case.mode == "sampling":
            with ba.sampling():
                output = call()
        else:
            output = call()
    expect(len(latents.local_terms) == 1, f"{len(latents.local_terms)} terms of KL were recorded")
    return output, latents.local_kl


def _expect_no_leak(case: Case, run, inputs: list[Tensor], output: Tensor, allowed: Tensor) -> None:
    """Other values and keys where no query may look change nothing, to the bit."""
    unseen = ~allowed.any(2, keepdim=True).transpose(2, 3)  # [batch, 1, key, 1]
    if not unseen.any():
        return
    query, key, value = (each.detach() for each in inputs)
    changed = [query, torch.where(unseen, key + 3, key), torch.where(unseen, value * -7 + 5, value)]
    seed(case.number)
    # gradients are on, as in the first run: the backend depends on that
    again, _ = run(case, [each.requires_grad_(case.mode == "train") for each in changed], allowed)
    expect(torch.equal(output, again), "what is masked changes the output")


@dataclass
class Tally:
    """Cases tried, what went wrong by the number of the case, and what was measured on the way."""

    tried: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)


def tally_of(
    cases: Iterable[int],
    make: Callable[[int], Any],
    check: Callable[[Any], object],
    tick: Callable[[], object],
    stop_after: int = 20,
) -> Tally:
    """Check the case of every number; give up after `stop_after` that went wrong."""
    tally = Tally()
    for number in cases:
        case = make(number)
        tally.tried += 1
        try:
            check(case)
        except Exception as problem:
            tally.wrong[number] = f"{case}: {type(problem).__name__}: {problem}"
            if len(tally.wrong) >= stop_after:
                break
        tick()
    return tally


def torture(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Check all these cases."""
    return tally_of(cases, Case.of, check, tick)
