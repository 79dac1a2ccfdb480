"""Ensembles: a sample is a member."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from torch import nn

import bayesattn as ba


def test_the_prediction_is_the_mixture_of_the_members() -> None:
    members = ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=3)
    x = torch.randn(5, 3)
    prediction = ba.predict(members, x, samples=6, max_rows=2)
    each = torch.stack([member(x) for member in members]).detach()
    torch.testing.assert_close(prediction.samples, each.repeat(2, 1, 1))
    torch.testing.assert_close(prediction.mean, each.softmax(-1).mean(0))  # probabilities, not logits
    torch.testing.assert_close(members.eval()(x), each.mean(0))


def test_a_member_may_be_random_itself() -> None:
    members = ba.weight_space.ensemble(lambda: ba.weight_space.mean_field(nn.Linear(3, 1), initial_scale=0.5), n=2)
    samples = ba.predict(members, torch.randn(4, 3), samples=6, likelihood="values").samples
    assert (samples[0::2].std(0) > 1e-3).all()


def test_with_where_all_else_is_shared() -> None:
    build = lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))  # noqa: E731
    first, second, third = ba.weight_space.ensemble(build, n=3, where="last")
    assert first[0].weight is second[0].weight is third[0].weight
    assert not torch.equal(first[2].weight, second[2].weight)


def test_it_is_trained_member_by_member() -> None:
    with pytest.raises(RuntimeError, match="for member in ensemble"):
        ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=2)(torch.randn(2, 3))
    with pytest.raises(ValueError, match="n must be a whole number"):
        ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=0)


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True, norm_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 3))


class _WithMask(nn.Module):
    """Padding, an embedding, a buffer that differs, and keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 16)
        self.register_buffer("shift", torch.randn(16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 9, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.encoder(self.embedding(tokens) + self.shift, src_key_padding_mask=tokens == 0)
        return {"scores": self.head(hidden)}


def _both_ways(members: list[nn.Module], inputs: object, **options: object) -> tuple[ba.weight_space.Ensemble, float]:
    together = ba.weight_space.Ensemble(members, together=True)
    one, other = (
        ba.predict(ensemble, inputs, samples=2 * len(members), max_rows=7, **options).samples
        for ensemble in (together, ba.weight_space.Ensemble(members, together=False))
    )
    return together, (one - other).abs().max().item()


def test_members_in_one_pass_give_what_they_give_one_after_another() -> None:
    members, distance = _both_ways([_encoder() for _ in range(3)], torch.randn(10, 5, 16))
    assert distance < 1e-5
    assert members.manner.works
    assert "in one pass" in repr(members)
    assert next(iter(members)).training  # left as it was
    tokens = torch.randint(0, 9, (10, 6))
    tokens[:, 0] = 1
    members, distance = _both_ways(
        [_WithMask() for _ in range(3)], {"tokens": tokens}, output=lambda out: out["scores"]
    )
    assert distance < 1e-5
    assert members.manner.works


def test_hugging_face_members_in_one_pass() -> None:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    inputs = {"input_ids": torch.randint(20, (6, 5)), "attention_mask": torch.ones(6, 5, dtype=torch.long)}
    inputs["attention_mask"][1:3, 3:] = 0
    built = [transformers.BertForSequenceClassification(config) for _ in range(3)]
    _, distance = _both_ways(built, inputs)
    assert distance < 1e-5


def test_members_that_cannot_run_in_one_pass_run_one_after_another_and_it_says_why() -> None:
    class Branches(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            made = super().forward(input)
            return made if self.weight.sum() > 0 else 2 * made

    x = torch.randn(10, 16)
    members, distance = _both_ways([Branches(16, 3) for _ in range(4)], x)
    assert distance < 1e-6
    assert "one after another (" in repr(members)

    hooked = [nn.Linear(16, 3) for _ in range(2)]
    hooked[1].register_forward_hook(lambda module, inputs, output: output + 1)
    members, distance = _both_ways(hooked, x)
    assert distance < 1e-6
    assert "has hooks" in repr(members)

    different = [nn.Sequential(nn.Linear(16, 3), nn.LeakyReLU(slope)) for slope in (0.1, 0.9)]
    members, distance = _both_ways(different, x)
    assert distance < 1e-6
    assert "they differ in '1'" in repr(members)

    secret = [nn.Linear(16, 3) for _ in range(2)]
    secret[1].forward = lambda input: torch.zeros(len(input), 3)  # what no comparison of attributes can see
    members, distance = _both_ways(secret, x)
    assert distance < 1e-6
    assert "outputs are others" in repr(members)

    random = ba.weight_space.Ensemble([ba.convert(_encoder(), ba.Weibull(k=2.0)) for _ in range(2)], together=True)
    ba.predict(random, torch.randn(4, 5, 16), samples=2)
    assert "is random" in repr(random)


def test_an_error_of_a_member_is_the_members_own() -> None:
    members = ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=3, together=True)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ba.predict(members, torch.randn(2, 5), samples=3)
    assert members.manner.failure is None
    ba.predict(members, torch.randn(2, 3), samples=3)
    assert members.manner.works


def test_threads_may_run_members_in_one_pass_at_once() -> None:
    members = ba.weight_space.ensemble(_encoder, n=3, together=True)
    inputs = [torch.randn(4, 5, 16) for _ in range(8)]
    expected = [torch.stack([member.eval()(x) for member in members]).detach() for x in inputs]
    members.train()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: ba.predict(members, x, samples=3).samples, inputs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert all(module.training for module in members.modules())
