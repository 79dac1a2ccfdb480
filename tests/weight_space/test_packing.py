"""Packed members are the separate narrow networks: outputs, gradients, training; and none sees another."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bayesattn as ba
from bayesattn.experiments.models.tagger import Tagger
from bayesattn.experiments.models.vit import ViT
from bayesattn.weight_space import Packed, pack, packed_width

MEMBERS = 3


def _vit() -> nn.Module:
    return ViT(image_size=8, patch_size=4, classes=5, dim=8, heads=2)


def _tagger() -> nn.Module:
    return Tagger(vocabulary=12, tags=5, max_len=6, dim=8)


def _tokens() -> torch.Tensor:
    tokens = torch.randint(1, 12, (4, 6))
    tokens[0, 3:] = 0
    return tokens


def _separate(build) -> tuple[Packed, list[nn.Module]]:
    networks = [build() for _ in range(MEMBERS)]
    apart = copy.deepcopy(networks)
    return Packed(networks), apart


@pytest.mark.parametrize("kind", ["vit", "tagger"])
def test_outputs_are_those_of_the_separate_networks(kind: str) -> None:
    packed, apart = _separate(_vit if kind == "vit" else _tagger)
    x = torch.randn(4, 1, 8, 8) if kind == "vit" else _tokens()
    each = torch.stack([network(x) for network in apart])
    torch.testing.assert_close(packed(x), each)
    prediction = ba.predict(packed, x, samples=MEMBERS)
    torch.testing.assert_close(prediction.samples, each.detach())
    torch.testing.assert_close(prediction.mean, each.detach().softmax(-1).mean(0))
    torch.testing.assert_close(packed.eval()(x), each.mean(0))
    torch.testing.assert_close(packed.network(1)(x), apart[1].eval()(x))
    assert packed.manner.works
    assert repr(packed).splitlines()[1].strip() == f"{MEMBERS} members, in one pass"


def test_no_member_depends_on_anothers_parameters() -> None:
    packed, _ = _separate(_vit)
    x = torch.randn(4, 1, 8, 8)
    for member in range(MEMBERS):
        gradients = torch.autograd.grad(packed(x)[member].square().sum(), list(packed.parameters()))
        for gradient in gradients:
            others = [index for index in range(MEMBERS) if index != member]
            assert gradient[member].abs().max() > 0
            assert gradient[others].abs().max() == 0
    before = packed(x).detach()
    with torch.no_grad():
        for parameter in packed.parameters():
            parameter[1] += torch.randn_like(parameter[1])
    after = packed(x).detach()
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_training_is_that_of_each_network_by_its_own_loss() -> None:
    packed, apart = _separate(_vit)
    x, y = torch.randn(6, 1, 8, 8), torch.randint(5, (6,))
    together = torch.optim.SGD(packed.parameters(), lr=0.1)
    for _ in range(3):
        logits = packed(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.repeat(MEMBERS), reduction="sum") / len(y)
        together.zero_grad()
        loss.backward()
        together.step()
    for index, network in enumerate(apart):
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimiser.step()
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(packed.member.get_parameter(name)[index], parameter, rtol=1e-4, atol=1e-6)


def test_dropout_is_each_members_own() -> None:
    build = lambda: nn.Sequential(nn.Linear(4, 200), nn.Dropout(0.5))  # noqa: E731
    packed = pack(build, members=2)
    with torch.no_grad():
        for parameter in packed.parameters():
            parameter[1] = parameter[0]
    torch.manual_seed(0)
    first, second = packed(torch.ones(3, 4)).ne(0)
    assert 0.3 < (first == second).float().mean() < 0.7
    assert packed.manner.works


def test_saved_and_loaded() -> None:
    packed, other = pack(_vit, MEMBERS), pack(_vit, MEMBERS)
    x = torch.randn(2, 1, 8, 8)
    other.load_state_dict(packed.state_dict())
    assert torch.equal(packed.eval()(x), other.eval()(x))
    assert packed.state_dict()["member.head.weight"].shape == (MEMBERS, 5, 8)


def test_calibrated_as_any_model_is() -> None:
    torch.manual_seed(0)
    packed = pack(_vit, MEMBERS)
    x, y = torch.randn(60, 1, 8, 8), torch.randint(5, (60,))
    knowing = ba.calibrate(packed, (x, y), samples=MEMBERS)
    torch.testing.assert_close(knowing.predict(x).raw[0], ba.predict(packed, x, samples=MEMBERS).samples)
    assert ba.calibrate(packed.network(0), (x, y), train=(x, y)).predict(x).distance.shape == (60,)
    with pytest.raises(RuntimeError, match=r"Ask a member alone: packed\.network\(0\)"):
        ba.calibrate(packed, (x, y), train=(x, y), samples=MEMBERS)


def test_what_vmap_cannot_run_runs_one_after_another() -> None:
    class Branches(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            made = super().forward(input)
            return made if self.weight.sum() > 0 else 2 * made

    packed, apart = _separate(lambda: Branches(4, 3))
    x = torch.randn(5, 4)
    torch.testing.assert_close(packed(x), torch.stack([network(x) for network in apart]))
    torch.testing.assert_close(ba.predict(packed, x, samples=3).samples, packed(x).detach())
    assert "one after another" in repr(packed)


def test_refused() -> None:
    with pytest.raises(ValueError, match="is random"):
        pack(lambda: ba.convert(nn.TransformerEncoderLayer(8, 2, batch_first=True), ba.Weibull(k=2.0)))
    with pytest.raises(ValueError, match="is random"):
        pack(lambda: ba.weight_space.mean_field(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="LSTM"):
        pack(lambda: nn.LSTM(2, 2))
    with pytest.raises(ValueError, match="not of one kind: they differ in 'Linear'"):
        Packed([nn.Linear(2, 2), nn.Linear(2, 3)])
    one = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="gave one twice"):
        pack(lambda: one)
    packed = pack(_vit, 2)
    ba.convert(packed, ba.Weibull(k=2.0))
    with pytest.raises(RuntimeError, match="not what it was when the model was packed"):
        packed(torch.randn(2, 1, 8, 8))
    packed = pack(_vit, 2)
    packed.member.head = nn.Linear(8, 7)
    with pytest.raises(RuntimeError, match=r"'head\.weight' is not what it was"):
        packed(torch.randn(2, 1, 8, 8))
    with pytest.raises(ValueError, match="members must be a whole number"):
        pack(_vit, 1)


def test_the_width_of_equal_products() -> None:
    assert packed_width(32, 4) == 16
    assert 4 * packed_width(64, 4) ** 2 == 64**2
    assert packed_width(60, 3, heads=5) % 5 == 0
