"""A module with other attributes computes with them, and the module itself does not notice."""

from functools import partial
from types import MethodType

import pytest
import torch
from torch import nn

from bayesattn.support.replica import altered, copied, in_eval_mode


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4)), nn.Linear(4, 2))


def test_another_parameter_counts_and_its_gradient_goes_to_it() -> None:
    model, x = network(), torch.randn(3, 4)
    tensor = torch.randn(2, 4, requires_grad=True)
    changed = altered(model, {model[2]: {"weight": tensor}}).eval()
    expected = nn.functional.linear(model[1].eval()(model[0](x)), tensor, model[2].bias)
    torch.testing.assert_close(changed(x), expected)
    (gradient,) = torch.autograd.grad(changed(x).sum(), tensor)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), tensor)[0])
    assert model[2].weight is not tensor
    assert changed[0] is model[0]


def test_eval_mode_is_the_model_itself_where_it_is_in_eval_mode() -> None:
    model = network()
    quiet, x = in_eval_mode(model), torch.randn(3, 4)
    assert torch.equal(quiet(x), quiet(x))
    assert not any(module.training for module in quiet.modules())
    assert all(module.training for module in model.modules())
    assert in_eval_mode(model.eval()) is model


def test_a_module_that_is_in_two_places_is_one_in_the_copy() -> None:
    part = nn.Dropout(0.5)
    quiet = in_eval_mode(nn.Sequential(part, nn.Sequential(part)))
    assert quiet[0] is quiet[1][0]  # pyright: ignore


@pytest.mark.parametrize("how", ["method", "partial", "attribute"])
def test_what_points_to_a_part_points_to_its_copy(how: str) -> None:
    """Libraries put a forward of their own into a module."""
    model, x = nn.Sequential(nn.Dropout(0.5)), torch.ones(1000)

    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, module.training)

    if how == "attribute":
        model.__dict__["owner"] = model[0]
        quiet = in_eval_mode(model)
        assert quiet.owner is quiet[0]  # pyright: ignore
        return
    model[0].forward = MethodType(forward, model[0]) if how == "method" else partial(forward, model[0])
    assert torch.equal(in_eval_mode(model)(x), x)
    assert not torch.equal(model(x), x)


def test_buffers_are_shared() -> None:
    norm = nn.BatchNorm1d(4)
    copied(norm, {"training": True})(torch.randn(10, 4) + 3)
    assert norm.num_batches_tracked == 1
    assert (norm.running_mean != 0).all()


def test_a_compiled_model_runs_as_it_is_or_not_at_all_compiled() -> None:
    model = network()
    compiled = torch.compile(model, backend="eager")
    quiet = in_eval_mode(compiled)
    assert type(quiet) is nn.Sequential
    assert not quiet[1][0].training  # pyright: ignore
    assert in_eval_mode(compiled.eval()) is compiled


def test_a_scripted_module_is_refused_unless_it_is_in_eval_mode() -> None:
    class Scripted(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Dropout(0.5)

    with pytest.raises(TypeError, match=r"scripted module.* call model.eval\(\) first"):
        in_eval_mode(Scripted())
