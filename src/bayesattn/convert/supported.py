"""What is tested, architecture by architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """One architecture whose conversion the tests prove: `Softmax()` gives the original back, noise does not leak past masks."""

    library: str
    name: str
    notes: str = ""


_TRANSFORMERS = {
    "ALBERT": "layers are shared: one posterior, one KL term for every time it runs",
    "BART": "encoder-decoder, cross-attention",
    "BERT": "also as a classifier, and as MiniLM (pretrained)",
    "CLIP": "text and image towers",
    "DistilBERT": "",
    "GPT-2": "decoder, KV cache, generate()",
    "Gemma": "grouped-query attention",
    "Gemma 2": "soft caps, sliding windows, grouped-query attention",
    "Gemma 3": "sliding windows, q/k norms",
    "Llama": "grouped-query attention; also as SmolLM2 (pretrained)",
    "Marian": "encoder-decoder, cross-attention",
    "Mistral": "sliding windows",
    "ModernBERT": "alternating sliding windows",
    "Qwen 2": "grouped-query attention",
    "Qwen 3": "q/k norms",
    "RoBERTa": "",
    "T5": "position bias, encoder-decoder, cross-attention",
    "ViT": "",
}
_TIMM = ("ViT", "DeiT", "BEiT", "EVA-02", "PVT v2")
_GEOMETRIC = ("GATConv", "GATv2Conv", "TransformerConv")
_TORCH = ("MultiheadAttention", "TransformerEncoder", "TransformerDecoder", "Transformer")


def supported(library: str | None = None) -> list[Architecture]:
    """The architectures whose conversion is tested, all or those of one library.

    Others of the same kind work too: in transformers, every model built on its `AttentionInterface`; in timm, every layer with
    fused attention that does not cut its input into windows. What cannot be converted is refused with the reason.

    >>> import bayesattn as ba
    >>> [architecture.name for architecture in ba.supported("torch_geometric")]
    ['GATConv', 'GATv2Conv', 'TransformerConv']
    """
    everything = [
        *(Architecture("torch", name) for name in _TORCH),
        *(Architecture("transformers", name, notes) for name, notes in _TRANSFORMERS.items()),
        *(Architecture("timm", name) for name in _TIMM),
        *(Architecture("torch_geometric", name) for name in _GEOMETRIC),
    ]
    libraries = list(dict.fromkeys(architecture.library for architecture in everything))
    if library is not None and library not in libraries:
        raise ValueError(f"library={library!r} is not known. Choose one of: {', '.join(map(repr, libraries))}.")
    return [architecture for architecture in everything if library in (None, architecture.library)]
