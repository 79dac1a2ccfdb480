"""Helpers that know nothing of attention: checks of arguments, shapes in signatures, JSON, files, which layers."""
