"""Training, saving and loading of converted Hugging Face models; needs the `hf` extra."""

try:
    import transformers as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "bayesattn.huggingface needs Hugging Face transformers: pip install 'bayesattn[hf]'."
    ) from error

from bayesattn.huggingface.adapters import get_peft_model, load_adapter
from bayesattn.huggingface.saving import from_pretrained
from bayesattn.huggingface.trainer import BayesianTrainer

__all__ = ["BayesianTrainer", "from_pretrained", "get_peft_model", "load_adapter"]
