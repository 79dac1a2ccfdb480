"""`where=`: which layers are chosen, and what is said when none is."""

from __future__ import annotations

import pytest
from torch import nn

from bayesattn.support.selection import Where, select

LAYERS: dict[str, nn.Module] = {
    name: nn.Identity() for name in ("encoder.0.attn", "encoder.1.attn", "decoder.0.self", "decoder.0.cross")
}
NAMES = list(LAYERS)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, NAMES),
        (lambda name, _: name.endswith("attn"), NAMES[:2]),
        (0, NAMES[:1]),
        (-1, NAMES[3:]),
        ([0, -1], [NAMES[0], NAMES[3]]),
        ("first", NAMES[:1]),
        ("last", NAMES[3:]),
        ("last 2", NAMES[2:]),
        ("last 2 layers", NAMES[2:]),
        ("first 3 layers", NAMES[:3]),
        ("encoder.1.attn", NAMES[1:2]),
        ("encoder.*", NAMES[:2]),
        (["decoder.*", "encoder.0.attn"], [NAMES[0], *NAMES[2:]]),
    ],
)
def test_the_chosen_layers_in_the_order_of_the_model(where: Where, expected: list[str]) -> None:
    assert list(select(LAYERS, where)) == expected


def test_self_and_cross_attention_by_their_roles() -> None:
    roles = {NAMES[0]: "self", NAMES[2]: "self", NAMES[3]: "cross"}
    assert list(select(LAYERS, "self", roles)) == [NAMES[0], NAMES[2]]
    assert list(select(LAYERS, "cross", roles)) == [NAMES[3]]
    with pytest.raises(ValueError, match="where='cross' chooses none"):
        select(LAYERS, "cross")
    named = {"self": nn.Identity(), "other": nn.Identity()}
    assert list(select(named, "self", {"other": "self"})) == ["self"], "a layer's own name comes first"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("where", "message"),
    [
        (7, "where=7 is out of range, the model has 4 attention layers: encoder.0.attn"),
        ("last 9 layers", "asks for 9 layers, the model has 4"),
        ("econder.*", "matches none of the model's attention layers: encoder.0.attn"),
        (lambda *_: False, "chooses none"),
    ],
)
def test_a_choice_of_nothing_is_refused(where: Where, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(LAYERS, where)
