"""Models made of `torch.nn.MultiheadAttention`, `nn.TransformerEncoder`, `nn.TransformerDecoder`."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from bayesattn.convert.adapter import Adapter, Role
from bayesattn.nn.multihead import MultiheadAttention, queries_are_padding
from bayesattn.posteriors import Posterior

_MARK = "_bayesattn_converted"


class TorchAdapter(Adapter):
    """Gives torch's attention modules our class: parameters, hooks and the module objects themselves stay as they are."""

    name = "torch.nn"

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if type(module) is nn.MultiheadAttention}

    def roles(self, model: nn.Module) -> dict[str, Role]:
        known: dict[int, Role] = {}
        for module in model.modules():
            if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                known[id(module.self_attn)] = "self"
            if isinstance(module, nn.TransformerDecoderLayer):
                known[id(module.multihead_attn)] = "cross"
        return {name: known[id(layer)] for name, layer in self.find(model).items() if id(layer) in known}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        known = (nn.MultiheadAttention, MultiheadAttention)
        return {
            name: f"{type(module).__name__} is a subclass of torch.nn.MultiheadAttention with a forward of its own"
            for name, module in model.named_modules()
            if isinstance(module, nn.MultiheadAttention) and type(module) not in known
        }

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, MultiheadAttention) and hasattr(module, _MARK)
        }

    def convert_layer(self, layer: nn.Module, posterior: Posterior) -> None:
        layer.__class__ = MultiheadAttention
        cast(MultiheadAttention, layer).set_posterior(posterior)
        setattr(layer, _MARK, True)

    def revert_layer(self, layer: nn.Module) -> None:
        layer = cast(MultiheadAttention, layer)
        delattr(layer, _MARK)
        del layer.posterior
        layer._qkv_same_embed_dim = layer.in_proj_weight is not None
        cast(nn.Module, layer).__class__ = nn.MultiheadAttention

    def after_conversion(self, model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder) and self.find_converted(module) and module.use_nested_tensor:
                module.use_nested_tensor = False  # its eval fast path would hand nested tensors to our layers
                setattr(module, _MARK, True)
            if (
                isinstance(module, nn.TransformerDecoderLayer)
                and hasattr(module.multihead_attn, _MARK)
                and not hasattr(module, _MARK)
            ):
                hooks = (
                    module.register_forward_pre_hook(_pass_on_query_padding, with_kwargs=True),
                    module.register_forward_hook(_forget_query_padding, always_call=True),
                )
                setattr(module, _MARK, hooks)

    def after_reversion(self, model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder) and hasattr(module, _MARK):
                module.use_nested_tensor = True
                delattr(module, _MARK)
            if isinstance(module, nn.TransformerDecoderLayer) and hasattr(module, _MARK):
                for hook in getattr(module, _MARK):
                    hook.remove()
                delattr(module, _MARK)


def _pass_on_query_padding(layer: nn.TransformerDecoderLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tell a decoder layer's cross-attention which of its queries are padding: torch tells only its self-attention."""
    # positional order of TransformerDecoderLayer.forward: tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask
    padding = kwargs.get("tgt_key_padding_mask", args[4] if len(args) > 4 else None)
    queries_are_padding.value = (layer.multihead_attn, padding)


def _forget_query_padding(layer: nn.TransformerDecoderLayer, args: Any, output: Any) -> None:
    queries_are_padding.value = (None, None)
