"""A Llama-type model (SmolLM2-135M) that marks the tokens it is unsure of.

    python examples/flag_uncertain_tokens.py "The capital of France is"

Downloads the pretrained model (90 MB) on first use; reading it needs `pip install gguf`.
"""

import argparse

import torch
import transformers

import bayesattn as ba
from bayesattn.experiments.data.pretrained import smollm2

parser = argparse.ArgumentParser()
parser.add_argument("prompt", nargs="?", default="The capital of France is")
parser.add_argument("--tokens", type=int, default=24)
parser.add_argument("--samples", type=int, default=8)
arguments = parser.parse_args()

folder, file = smollm2()
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
ba.convert(model, ba.Weibull(k=10.0))

inputs = tokenizer(arguments.prompt, return_tensors="pt")
generation = ba.generate(model, **inputs, samples=arguments.samples, max_new_tokens=arguments.tokens)

flagged = generation.mutual_information[0] > generation.mutual_information[0].quantile(0.8)
print(arguments.prompt, end="")
for token, unsure in zip(generation.tokens[0], flagged, strict=True):
    word = tokenizer.decode(token)
    print(f"[{word}?]" if unsure else word, end="")
print("\n\n   entropy  disagreement  token")
for token, entropy, information in zip(
    generation.tokens[0], generation.entropy[0], generation.mutual_information[0], strict=True
):
    print(f"{entropy:10.3f}  {information:12.4f}  {tokenizer.decode(token)!r}")
