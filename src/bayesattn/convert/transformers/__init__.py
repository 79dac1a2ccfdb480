"""Hugging Face transformers: the adapters, and the attention function that transformers calls."""
