"""`check_posterior`: the contract of a posterior, run on a class of your own, with words for each fault."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import torch
from torch import Tensor

from bayesattn.attention import attend
from bayesattn.posteriors import Posterior
from bayesattn.posteriors.rows import DenseRows
from bayesattn.scopes.modes import sampling
from bayesattn.scopes.recording import record
from bayesattn.support.configurable import from_config

LogRatio = Callable[[Tensor, Tensor], Tensor]
_BATCH, _HEADS, _QUERIES, _KEYS, _FEATURES = 2, 3, 4, 5, 6
_ERRORS = 5.0
"""Standard errors that a mean of draws may be off."""
_STEP = 0.2
"""Of a difference of means; what it is off by is of the order of its square."""


class Fault(AssertionError):
    """What is wrong with a posterior, fault by fault."""


def check_posterior(
    posterior: Posterior | type[Posterior], *, log_ratio: LogRatio | None = None, draws: int = 20_000, seed: int = 0
) -> list[str]:
    """Run the contract of `ba.Posterior` on a class, or on an instance with the options that matter; say what was checked.

    Raises `Fault`, an AssertionError, with a line for everything that does not hold: config and registration, parameters, draws
    and their generator, masks, the KL's shape, sign and what it counts, gradients against differences, extreme scores.

    Args:
        posterior: the class, if its constructor has defaults, or an instance, not bound.
        log_ratio: of (log S, scores), both [draws, 1, 1, 3]: log q(S) - log p(S) summed over the three weights of a row, [draws].
            With it, the KL is checked against the mean over draws, which is what a KL is. log S is what `log_sample` gave.
        draws: how many, for that and for the gradient of the draws.
        seed: of the scores and of the draws.

    >>> import bayesattn as ba
    >>> len(ba.testing.check_posterior(ba.Weibull(k=2.0)))
    9
    """
    made = posterior() if isinstance(posterior, type) else posterior
    if not isinstance(made, Posterior):
        raise TypeError(
            f"posterior must be a subclass of ba.Posterior, or an instance; got {made!r} of type {type(made).__name__}."
        )
    examination = _Examination(made, log_ratio, draws, seed)
    faults: list[str] = []
    checked: list[str] = []
    for check in examination.checks():
        words = " ".join((check.__doc__ or "").split())
        torch.manual_seed(seed)
        try:
            check()
        except Fault as fault:
            faults.append(str(fault))
        except Exception as problem:
            faults.append(f"{words} {type(problem).__name__} was raised: {problem}")
        else:
            checked.append(words)
    if faults:
        name = type(made).__name__
        raise Fault(f"{name} breaks the contract of ba.Posterior:\n" + "\n".join(f"- {fault}" for fault in faults))
    return checked


def _require(holds: bool | Tensor, words: str) -> None:
    if not bool(holds):
        raise Fault(words)


class _Examination:
    """The checks. The docstring of each is what it says when it has been passed."""

    def __init__(self, template: Posterior, log_ratio: LogRatio | None, draws: int, seed: int):
        self.template = template
        self.name = type(template).__name__
        self.log_ratio = log_ratio
        self.draws = draws
        self.seed = seed

    def checks(self) -> list[Callable[[], None]]:
        checks = [
            self.config,
            self.parameters,
            self.sampling,
            self.masks,
            self.kl,
            self.kl_counts,
            self.gradient_of_kl,
            self.gradient_of_draws,
            self.extremes,
        ]
        return [*checks, self.kl_of_draws] if self.log_ratio is not None else checks

    def bound(self) -> Posterior:
        return self.template.bind(num_heads=_HEADS, head_dim=_FEATURES).double()

    def sample(
        self, posterior: Posterior, scores: Tensor, rows: DenseRows, seed: int, keys: Tensor | None = None
    ) -> Tensor:
        given = {"keys": self.inputs()[1] if keys is None else keys} if posterior.samples_from_keys else {}
        return posterior.log_sample(scores, rows, torch.Generator().manual_seed(seed), **given)

    @staticmethod
    def inputs() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)
        scores = torch.randn(_BATCH, _HEADS, _QUERIES, _KEYS, dtype=torch.float64, generator=generator)
        return scores, torch.randn(_BATCH, _HEADS, _KEYS, _FEATURES, dtype=torch.float64, generator=generator)

    @staticmethod
    def all_rows() -> DenseRows:
        return DenseRows((_BATCH, _HEADS, _QUERIES, _KEYS))

    @staticmethod
    def masked_rows() -> DenseRows:
        """The second example has two keys of padding, its first query may attend to nothing, its last query is padding."""
        allowed = torch.ones(_BATCH, 1, _QUERIES, _KEYS, dtype=torch.bool)
        allowed[1, :, :, 3:] = False
        allowed[1, :, 0] = False
        counted = torch.ones(_BATCH, _QUERIES, dtype=torch.bool)
        counted[1, -1] = False
        return DenseRows((_BATCH, _HEADS, _QUERIES, _KEYS), allowed, counted)

    def config(self) -> None:
        """It is made again from its config."""
        try:
            described = self.template.config()
        except AttributeError as problem:
            raise Fault(
                f"__init__: each argument must be kept under its own name, as self.<argument>, for config(): {problem}."
            ) from problem
        try:
            written = json.loads(json.dumps(described))
        except TypeError as problem:
            raise Fault(f"config(): {described} is no JSON: arguments must be plain values ({problem}).") from problem
        try:
            again = from_config(written)
        except ValueError as problem:
            raise Fault(
                f"from_config(config()) fails ({problem}): write @register of bayesattn.posteriors above the class, or it cannot be saved."
            ) from problem
        _require(type(again) is type(self.template), f"another class is registered under the name {self.name!r}.")
        _require(again.config() == described, f"from_config(config()).config() is {again.config()}, not {described}.")

    def parameters(self) -> None:
        """Each layer has parameters of its own, and the template none."""
        own = [name for name, _ in self.template.named_parameters()]
        _require(not own, f"__init__ makes the parameters {own}: make them in _make_parameters(num_heads, head_dim).")
        one, other = self.bound(), self.bound()
        shared = {id(each) for each in one.parameters()} & {id(each) for each in other.parameters()}
        _require(not shared, "bind: two layers share parameters; make new ones in _make_parameters.")
        _require(not one.needs_binding, "needs_binding is True for a posterior that bind() has made.")
        has_any = next(one.parameters(), None) is not None
        _require(
            self.template.needs_binding or not has_any,
            "needs_binding must be True for the template: it has parameters only after bind().",
        )

    def sampling(self) -> None:
        """Draws are finite, differ from row to row, and come from the generator."""
        posterior, rows = self.bound(), self.all_rows()
        scores, _ = self.inputs()
        drawn = self.sample(posterior, scores, rows, 1)
        _require(
            drawn.shape == scores.shape,
            f"log_sample returned shape {tuple(drawn.shape)}, not that of the scores {tuple(scores.shape)}.",
        )
        _require(torch.isfinite(drawn).all(), "log_sample returned values that are not finite.")
        _require(
            torch.equal(drawn, self.sample(posterior, scores, rows, 1)),
            "log_sample does not draw from the generator that it is given: the same seed gives other draws.",
        )
        weights = rows.softmax(drawn)
        if torch.equal(weights, rows.softmax(posterior.log_mean(scores))):
            return  # it has no noise at all
        _require(
            not torch.equal(drawn, self.sample(posterior, scores, rows, 2)),
            "log_sample does not draw from the generator that it is given: another seed gives the same draws.",
        )
        alike = scores[:1, :1, :1].expand_as(scores)
        same_keys = self.inputs()[1][:1, :1].expand(_BATCH, _HEADS, _KEYS, _FEATURES)
        weights = rows.softmax(self.sample(posterior, alike, rows, 1, same_keys))
        _require(
            len({tuple(row.tolist()) for row in weights[:, 0].flatten(0, -2)}) == _BATCH * _QUERIES,
            "log_sample gives equal rows equal draws: noise must have the shape of the rows, or of the pairs.",
        )

    def masks(self) -> None:
        """Blocked keys have weight 0 and no influence, in `attend` with a causal mask."""
        posterior = self.bound()
        generator = torch.Generator().manual_seed(2)
        query, key = (torch.randn(2, _HEADS, 4, _FEATURES, dtype=torch.float64, generator=generator) for _ in range(2))
        changed = key.clone()
        changed[:, :, 2:] += 3.0
        results = []
        for keys in (key, changed):
            torch.manual_seed(3)
            with sampling(), record() as latents:
                _, weights = attend(query, keys, keys, posterior, is_causal=True, need_weights=True)
            results.append(weights)
            kl = latents.local_kl
            _require(kl.shape == (2,), f"attend recorded a KL of shape {tuple(kl.shape)}, not [batch] = (2,).")
        _require((results[0].triu(1) == 0).all(), "attend: keys that a causal mask blocks have a weight.")
        ones = torch.ones_like(results[0][..., 0])
        _require(torch.allclose(results[0].sum(-1), ones), "attend: the weights of a row do not sum to 1.")
        same = torch.allclose(results[0][:, :, :2], results[1][:, :, :2], rtol=1e-9, atol=1e-12)
        scores, rows = self.inputs()[0], self.masked_rows()
        filled = [
            rows.softmax(self.sample(posterior, rows.fill_blocked(scores, value), rows, 1)) for value in (0.0, 3.0)
        ]
        _require(
            same and torch.allclose(*filled, rtol=1e-9, atol=1e-12),
            "log_sample lets keys that a mask blocks change the weights of others: use the sums of `rows`, not torch's.",
        )

    def kl(self) -> None:
        """The KL is finite, at least 0, one number for each example, which other examples do not change."""
        posterior = self.bound()
        scores, keys = self.inputs()
        kl = posterior.kl(scores, keys, self.all_rows())
        _require(
            kl.shape == (_BATCH,),
            f"kl returned shape {tuple(kl.shape)}, not [batch] = ({_BATCH},): use rows.total_of_pairs.",
        )
        _require(torch.isfinite(kl).all(), f"kl returned {kl.tolist()}, which is not finite.")
        _require((kl >= -1e-9).all(), f"kl returned {kl.tolist()}: a KL is never negative.")
        alone = posterior.kl(scores[1:], keys[1:], DenseRows((1, _HEADS, _QUERIES, _KEYS)))
        _require(
            torch.allclose(alone, kl[1:], rtol=1e-9),
            f"kl of an example alone is {alone.item()}, in a batch {kl[1].item()}.",
        )

    def kl_counts(self) -> None:
        """Masked pairs, rows without keys and padded queries count in no KL."""
        posterior, rows = self.bound(), self.masked_rows()
        scores, keys = self.inputs()
        kl = posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows)
        _require(torch.isfinite(kl).all(), f"kl returned {kl.tolist()} with a mask, which is not finite.")
        places = {
            "padded queries": ((1, slice(None), -1), None),
            "masked keys": (None, (1, slice(None), slice(3, None))),
        }
        for what, (of_scores, of_keys) in places.items():
            changed_scores, changed_keys = scores.clone(), keys.clone()
            if of_scores is not None:
                changed_scores[of_scores] += 3.0
            if of_keys is not None:
                changed_keys[of_keys] += 3.0
            again = posterior.kl(rows.fill_blocked(changed_scores, 0.0), changed_keys, rows)
            _require(
                torch.allclose(again, kl, rtol=1e-9),
                f"kl counts {what}: sum with rows.total_of_pairs or rows.total_of_rows.",
            )
        alone = posterior.kl(scores[1:, :, 1:3, :3], keys[1:, :, :3], DenseRows((1, _HEADS, 2, 3)))
        _require(
            torch.allclose(alone, kl[1:], rtol=1e-8),
            f"kl of what a mask leaves is {kl[1].item()}, and {alone.item()} without the rest: count keys with rows.sizes, sum with rows.",
        )

    def gradient_of_kl(self) -> None:
        """The gradient of the KL is its difference, for scores, keys and parameters."""
        posterior, rows = self.bound(), self.masked_rows()
        scores, keys = (tensor.requires_grad_() for tensor in self.inputs())
        kl = posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows)
        if not kl.requires_grad:
            _require((kl == 0).all(), "kl has no gradient: compute it from the scores with torch's operations.")
            return
        torch.autograd.gradcheck(
            lambda scores, keys, *_: posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows),
            (scores, keys, *posterior.parameters()),
            rtol=1e-3,
            atol=1e-4,
            eps=1e-6,
            fast_mode=True,
        )

    def gradient_of_draws(self) -> None:
        """The gradient of the draws is that of their mean, and every parameter gets one."""
        posterior = self.bound()
        scores, keys = self.inputs()
        drawn = self.sample(posterior, scores.requires_grad_(), self.all_rows(), 1)
        _require(
            drawn.requires_grad, "log_sample is not differentiable in the scores: draw by reparameterisation (rsample)."
        )
        kl = posterior.kl(scores, keys, self.all_rows())
        total = drawn.softmax(-1)[..., 0].sum() + kl.sum()
        parameters = dict(posterior.named_parameters())
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True) if parameters else ()
        unreached = [name for name, gradient in zip(parameters, gradients, strict=True) if gradient is None]
        _require(
            not unreached, f"neither log_sample nor kl uses the parameters {unreached}, which would never be trained."
        )
        self._pathwise()

    def _pathwise(self) -> None:
        """d E[W_0²] / d score_0: the mean of the draws' gradients against the difference of means."""
        posterior = self.template.bind(num_heads=1, head_dim=_FEATURES).double()
        row = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
        rows = DenseRows((self.draws, 1, 1, 3))
        keys = self.inputs()[1][:1, :1, :3].expand(self.draws, 1, 3, _FEATURES)

        def squares(shift: float, seed: int) -> tuple[Tensor, Tensor]:
            moved = torch.zeros(self.draws, dtype=torch.float64, requires_grad=True)
            first = row[0] + shift + moved
            scores = torch.stack([first, row[1].expand_as(first), row[2].expand_as(first)], -1)[:, None, None]
            weights = rows.softmax(self.sample(posterior, scores, rows, seed, keys))
            return weights[:, 0, 0, 0].square(), moved

        values, moved = squares(0.0, self.seed)
        (gradients,) = torch.autograd.grad(values.sum(), moved)
        up, down = (squares(sign * _STEP, self.seed + 1 + sign)[0].detach() for sign in (1, -1))
        difference = float((up.mean() - down.mean()) / (2 * _STEP))
        error = float((gradients.var() + (up.var() + down.var()) / (2 * _STEP) ** 2) / self.draws) ** 0.5
        mean = float(gradients.mean())
        _require(
            abs(mean - difference) <= _ERRORS * error + _STEP**2 / 8,
            f"log_sample: the mean of the draws' gradients is {mean:.4f}, the difference of their means {difference:.4f} (standard error "
            f"{error:.4f}): something random in it hides from the gradient.",
        )

    def extremes(self) -> None:
        """Scores of 50 and -50 and rows of one key give finite draws and a finite KL, in float32."""
        posterior = self.template.bind(num_heads=_HEADS, head_dim=_FEATURES)
        scores, keys = (tensor.float() for tensor in self.inputs())
        for name, given in (("scores of ±50", scores.sign() * 50.0), ("rows of one key", scores[..., :1])):
            rows = DenseRows(tuple(given.shape))  # pyright: ignore[reportArgumentType]
            some_keys = keys[:, :, : given.shape[-1]]
            drawn = self.sample(posterior, given, rows, 1, some_keys)
            _require(torch.isfinite(drawn).all(), f"log_sample is not finite at {name}: work in logarithms.")
            kl = posterior.kl(given, some_keys, rows)
            _require(torch.isfinite(kl).all(), f"kl is {kl.tolist()} at {name}: work in logarithms.")

    def kl_of_draws(self) -> None:
        """The KL is the mean of log q(S) - log p(S) over draws."""
        assert self.log_ratio is not None
        posterior = self.template.bind(num_heads=1, head_dim=_FEATURES).double()
        row = torch.tensor([[[[0.3, -1.0, 0.5]]]], dtype=torch.float64)
        keys = self.inputs()[1][:1, :1, :3]
        exact = posterior.kl(row, keys, DenseRows((1, 1, 1, 3))).item()
        scores, rows = row.expand(self.draws, 1, 1, 3), DenseRows((self.draws, 1, 1, 3))
        with torch.no_grad():
            drawn = self.sample(posterior, scores, rows, self.seed, keys.expand(self.draws, 1, 3, _FEATURES))
            ratios = self.log_ratio(drawn, scores)
        _require(
            ratios.shape == (self.draws,),
            f"log_ratio returned shape {tuple(ratios.shape)}, not [draws] = ({self.draws},): sum over the weights of a row.",
        )
        mean, error = ratios.mean().item(), ratios.std().item() / math.sqrt(self.draws)
        _require(
            abs(mean - exact) <= _ERRORS * error + 1e-9,
            f"kl is {exact:.4f}, but the mean of log q - log p over {self.draws} draws is {mean:.4f} (standard error {error:.4f}): "
            "the formula, or the draws, are wrong.",
        )
