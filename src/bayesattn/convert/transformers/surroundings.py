"""What an attention layer cannot see by itself: what its model was given, and whether its batch is one of parts of examples."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bayesattn.scopes.modes import as_in_first_run
from bayesattn.scopes.variable import PerThread
from bayesattn.support.annotations import Bool


class Input:
    """What a model was given, while it runs; known to the layers in it."""

    def __init__(
        self,
        hook: PassesOnInput,
        padding: Tensor | None,
        main: Tensor | None,
        tensors: dict[str, Tensor],
        config: Any,
        outer: Input | None,
    ) -> None:
        self.hook = hook
        self.tensors = tensors
        """Those of `_KEPT`."""
        self.config = config
        self.padding = padding
        """[batch, length], False where its own input is padding."""
        self.batch = None if main is None else main.shape[0]
        self.length = None if main is None or main.dim() < 2 else main.shape[1]
        self.outer = outer


DECODER_PADDING = "decoder_padding_mask"
"""The argument of FSMT's decoder that is True at padding; its model's `attention_mask` is that of the source."""

_inputs = PerThread(None)
_KEPT = ("input_ids", "grid_thw", "image_grid_thw", "video_grid_thw")


class PassesOnInput:
    """Hooks around a model's forward: tell its attention layers how many examples it has, and which of its positions are padding.

    Cross-attention cannot know the second, and windows of images not the first. `parameters` are the names of the forward's arguments,
    `main` is the name of the one that has the examples. A decoder that is no model of its own says its padding by `DECODER_PADDING`.
    """

    def __init__(self, parameters: list[str], main: str) -> None:
        self.parameters = parameters
        self.main = main

    def before(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the forward."""
        given = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        mask = given.get("attention_mask")
        padding = mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None
        if DECODER_PADDING in self.parameters:
            is_padding = given.get(DECODER_PADDING)
            padding = None if is_padding is None else ~is_padding
        names = (self.main, "inputs_embeds", self.parameters[0] if self.parameters else "")
        found = next((tensor for name in names if isinstance(tensor := given.get(name), Tensor) and tensor.dim()), None)
        tensors = {name: tensor for name in _KEPT if isinstance(tensor := given.get(name), Tensor)}
        _inputs.value = Input(self, padding, found, tensors, getattr(model, "config", None), _inputs.value)

    def after(self, model: nn.Module, args: Any, output: Any) -> None:
        """After it, also when it failed."""
        given: Input | None = _inputs.value
        while given is not None and given.hook is not self:  # of a part that failed
            given = given.outer
        _inputs.value = None if given is None else given.outer


def input_of_model() -> Input | None:
    """What the model that is running was given."""
    return _inputs.value


def padding_of_model() -> Bool[Tensor, "batch length"] | None:
    """Padding of the model that is running; when gradient checkpointing runs a layer again, that of its first run."""
    given: Input | None = _inputs.value
    return as_in_first_run("padding", None if given is None else given.padding)


def padding_of_queries(layer: nn.Module, batch: int, queries: int) -> Bool[Tensor, "batch queries"] | None:
    """The same, of the queries of a layer; None where those are not what the model was given, but latents of their own.

    With a cache they are the last ones of the padding; in a Q-Former, whose learned queries come before a text, the first ones.
    """
    given: Input | None = _inputs.value
    leads = type(layer).__name__.endswith("QFormerMultiHeadAttention")
    padding = None if given is None or not (leads or given.length in (None, queries)) else given.padding
    padding = as_in_first_run("padding", padding)
    if padding is None or padding.shape[0] != batch or padding.shape[1] < queries:
        return None
    return padding[:, :queries] if leads else padding[:, -queries:]


def examples_of_model() -> int | None:
    """How many examples the model that is running was given."""
    given: Input | None = _inputs.value
    return as_in_first_run("examples", None if given is None else given.batch)


def is_windowed(layer: nn.Module) -> bool:
    """Whether the batch of this layer is one of parts of examples: windows of an image (Swin, SAM, MobileViT), frames of a video."""
    return type(layer).__name__.endswith(_IN_PARTS) or has_shifted_windows(layer)


def has_shifted_windows(layer: nn.Module) -> bool:
    """Whether this is Swin's attention, or that of its kin."""
    owners = (layer, getattr(layer, "relative_position_bias", None))
    return any(isinstance(getattr(owner, "window_size", None), (tuple, list)) for owner in owners)


_IN_PARTS = (
    "MobileViTSelfAttention",
    "SamAttention",
    "SamVisionAttention",
    "SamVisionSdpaAttention",
    "TimesformerSelfAttention",
)
