"""Images packed into one row (Qwen2-VL and its kin): the KL of each image goes to the example whose text it stands in.

Such a vision layer is given the patches of all images, one after the other, and the places where one ends (`cu_seqlens`); it attends
inside each in turn, with a batch of 1. Which example an image belongs to only the model around it knows, by the image tokens in the texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from bayesattn.convert.transformers.surroundings import Input, input_of_model
from bayesattn.scopes.recording import Latents, add_local

_TOKENS = {"image_grid_thw": "image_token_id", "video_grid_thw": "video_token_id"}
"""The sizes of what was packed, and the name in the config of the token that stands for it in a text."""


def is_packed(arguments: Iterable[str]) -> bool:
    """Whether a layer whose forward has these arguments is given several images in one row."""
    return "cu_seqlens" in arguments


def add_to_examples(parts: Latents, ends: Tensor) -> None:
    """Hand the KL of the parts of a packed row, which end there, to the open recorder, as one term with a number for each example.

    Where it cannot be told whose they are, they are handed on one by one, so that a batch of several texts is refused.
    """
    terms = parts.local_terms
    if not terms:
        return
    owners = _owners(ends, len(terms))
    if owners is None:
        for term in terms:
            add_local(term.kl, term.elements, term.rows, term.tokens, term.source, term.are_attention_weights)
        return
    places, examples = owners
    index = torch.tensor(places, device=terms[0].kl.device)
    totals = (torch.cat([getattr(term, name) for term in terms]) for name in ("kl", "elements", "rows", "tokens"))
    kl, elements, rows, tokens = (each.new_zeros(examples).index_add(0, index, each) for each in totals)
    add_local(kl, elements, rows, tokens, terms[0].source, terms[0].are_attention_weights)


def _owners(ends: Tensor, parts: int) -> tuple[list[int], int] | None:
    """The example of each part, and how many examples there are; None if that cannot be told."""
    given = input_of_model()
    grid = None if given is None else given.tensors.get("grid_thw")
    if given is None or grid is None:
        return None
    patches = grid.prod(-1).tolist()
    starts = ends.tolist()
    if len(starts) != parts + 1 or starts[-1] != sum(patches):
        return None
    last_patches = list(accumulate(patches))
    images = [bisect_right(last_patches, start) for start in starts[:-1]]
    found = _examples_of_images(given, grid, patches)
    if found is None:
        return None
    examples, number = found
    return [examples[image] for image in images], number


def _examples_of_images(given: Input, grid: Tensor, patches: list[int]) -> tuple[list[int], int] | None:
    """The example of each image; a vision model that runs alone has the images as its examples."""
    outer = given.outer
    if outer is None:
        return list(range(len(patches))), len(patches)
    named = [name for name in _TOKENS if _is_same(outer.tensors.get(name), grid)]
    ids = outer.tensors.get("input_ids")
    token = getattr(outer.config, _TOKENS[named[0]], None) if named else None
    if ids is None or token is None:
        return None
    merged = int(getattr(given.config, "spatial_merge_size", 1)) ** 2
    left: list[int] = (ids == token).sum(1).tolist()
    examples: list[int] = []
    example = 0
    for tokens in (each // merged for each in patches):
        while example < len(left) and left[example] == 0:
            example += 1
        if example == len(left) or left[example] < tokens:
            return None
        left[example] -= tokens
        examples.append(example)
    return (examples, len(left)) if not any(left) else None


def _is_same(one: Any, other: Tensor) -> bool:
    return isinstance(one, Tensor) and (one is other or (one.shape == other.shape and bool(torch.equal(one, other))))
