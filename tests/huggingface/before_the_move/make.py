"""How the files beside this one were made, once, by the tree before the move of issue 20 (commit dffcbaf), which had no
`bayesattn.experiments`; with its `src` as PYTHONPATH:

    python make.py FOLDER

It needs names that both trees have, and writes the model as `save_pretrained` did, a state dict alone, the posterior's config, and
what the model gave: a KL, and logits of its point estimate.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

import bayesattn as ba

folder = Path(sys.argv[1])
torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    num_labels=3,
    initializer_range=0.5,
)
posterior = ba.Weibull(k=7.0, prior=ba.ContextualGamma(beta=0.5, hidden=3))
model = ba.convert(transformers.BertForSequenceClassification(config), posterior).eval()
model.save_pretrained(folder / "model")
torch.save(model.state_dict(), folder / "state.pt")
tokens = torch.arange(10).view(2, 5)
with torch.no_grad():
    logits = model(input_ids=tokens).logits
with torch.no_grad(), ba.sampling(), ba.record() as sampled:
    model(input_ids=tokens)
found = {
    "posterior": posterior.config(),
    "logits": logits.tolist(),
    "local_kl": sampled.local_kl.tolist(),
}
(folder / "expected.json").write_text(json.dumps(found, indent=2) + "\n")
