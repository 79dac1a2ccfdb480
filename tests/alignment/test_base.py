"""The contract of every objective: padding, recording, empty sources, dtypes, messages, configurations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.alignment import OBJECTIVES, Marginal, Objective, Soft, Variational, objective_by_name

BATCH, TARGET, SOURCE, FEATURES = 3, 4, 5, 2
SOURCE_MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
TARGET_MASK = torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]])


def log_f(contexts: Tensor) -> Tensor:
    return -(contexts - torch.arange(TARGET).unsqueeze(-1)).square().sum(-1)


def inputs(objective: Objective) -> tuple[Tensor, Tensor, Tensor | None]:
    torch.manual_seed(0)
    memory, prior, posterior = (
        torch.randn(BATCH, *shape) for shape in ((SOURCE, FEATURES), (TARGET, SOURCE), (TARGET, SOURCE))
    )
    return memory, prior, posterior if objective.needs_posterior else None


@pytest.fixture(params=OBJECTIVES)
def objective(request: pytest.FixtureRequest) -> Objective:
    return objective_by_name(request.param)


def test_padding_of_source_and_target_changes_nothing(objective: Objective) -> None:
    memory, prior, posterior = inputs(objective)
    objective.eval()
    with ba.record() as padded:
        loss = objective(log_f, memory, prior, posterior, source_mask=SOURCE_MASK, target_mask=TARGET_MASK)
    assert (loss[~TARGET_MASK] == 0).all()
    (term,) = padded.local_terms
    for b in range(BATCH):
        source, target = int(SOURCE_MASK[b].sum()), int(TARGET_MASK[b].sum())
        cut = (slice(b, b + 1), slice(target), slice(source))
        with ba.record() as short:
            alone = objective(
                lambda contexts, target=target: -(contexts - torch.arange(target).unsqueeze(-1)).square().sum(-1),
                memory[b : b + 1, :source],
                prior[cut],
                None if posterior is None else posterior[cut],
            )
        assert torch.allclose(loss[b, :target], alone[0], atol=1e-4)
        assert torch.allclose(padded.local_kl[b], short.local_kl[0], atol=1e-4)
        assert (term.tokens[b], term.rows[b], term.elements[b]) == (target, target, target * source)


def test_an_empty_source_has_a_context_of_zeros(objective: Objective) -> None:
    memory, prior, posterior = inputs(objective)
    for leaf in (memory, prior):
        leaf.requires_grad_(True)
    mask = SOURCE_MASK.clone()
    mask[1] = False
    with ba.record() as latents:
        loss = objective(log_f, memory, prior, posterior, source_mask=mask)
    assert torch.allclose(loss[1], -log_f(torch.zeros(1, 1, 1, FEATURES))[0, 0], atol=1e-5)
    assert latents.local_kl[1] == 0
    gradients = torch.autograd.grad(loss.sum() + latents.local_kl.sum(), (memory, prior), allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
    assert gradients[0] is not None
    assert (gradients[0][1] == 0).all()


def test_the_elbo_takes_every_objective_and_by_layer_finds_it(objective: Objective) -> None:
    memory, prior, posterior = inputs(objective)
    prior.requires_grad_(True)
    model = torch.nn.ModuleDict({"alignment": objective})
    with ba.record() as latents:
        loss = objective(log_f, memory, prior, posterior, target_mask=TARGET_MASK)
    total = ba.elbo(loss, latents)
    expected = loss.sum() / BATCH + latents.local_kl.mean()
    assert torch.allclose(total.loss, expected)
    assert torch.equal(latents.by_layer(model)["alignment"], latents.local_kl)


def test_a_configuration_gives_it_back(objective: Objective) -> None:
    again = ba.from_config(objective.config())
    assert type(again) is type(objective)
    assert again.config() == objective.config()


def test_half_precision_scores_are_computed_in_float32(objective: Objective) -> None:
    memory, prior, posterior = inputs(objective)
    objective.eval()
    half = [None if each is None else each.bfloat16() for each in (memory, prior, posterior)]
    with ba.record() as latents:
        loss = objective(lambda contexts: log_f(contexts.float()), *half)
    with ba.record() as reference:
        exact = objective(log_f, *(None if each is None else each.float() for each in half))
    assert loss.dtype == latents.local_kl.dtype == torch.float32
    assert torch.allclose(latents.local_kl, reference.local_kl)
    assert torch.allclose(loss, exact, rtol=0.05, atol=0.05)


def test_without_a_recorder_nothing_is_kept(objective: Objective) -> None:
    memory, prior, posterior = inputs(objective)
    with ba.record() as latents:
        pass
    objective(log_f, memory, prior, posterior)
    assert len(latents) == 0


def test_messages_name_the_argument_and_the_remedy(unchecked: None) -> None:
    memory, prior, posterior = inputs(Variational())
    with pytest.raises(
        ValueError, match="Variational needs posterior_scores, got None: make them with an inference network"
    ):
        Variational()(log_f, memory, prior)
    with pytest.raises(ValueError, match="Soft has no use for posterior_scores"):
        Soft()(log_f, memory, prior, posterior)
    with pytest.raises(ValueError, match="must agree in batch and source"):
        Soft()(log_f, memory[:, :2], prior)
    with pytest.raises(ValueError, match=r"memory must be \[batch, source, features\]"):
        Soft()(log_f, memory[0], prior)
    with pytest.raises(ValueError, match="must have the shape of prior_scores"):
        Variational()(log_f, memory, prior, prior[:, :1])
    with pytest.raises(ValueError, match=r"source_mask must be boolean of shape \(3, 5\)"):
        Soft()(log_f, memory, prior, source_mask=torch.ones(3, 5))
    with pytest.raises(ValueError, match=r"likelihood must turn contexts .* it returned \(5, 3\)"):
        Marginal()(lambda contexts: log_f(contexts).sum(-1), memory, prior)
    with pytest.raises(ValueError, match=r"objective='margnal' is not known\. Did you mean 'marginal'"):
        objective_by_name("margnal")
