"""Sentences of a small grammar, for trying out what is made for real text."""

from __future__ import annotations

import random

_NAMES = ("anna", "bruno", "carla", "david", "elena", "felix", "greta", "hugo")
_ADJECTIVES = ("old", "small", "red", "quiet", "heavy", "round", "empty", "warm")
_NOUNS = ("house", "river", "stone", "letter", "garden", "window", "boat", "table", "road", "lamp")
_VERBS = ("saw", "painted", "carried", "forgot", "found", "described", "left", "wanted")
_PLACES = ("in the city", "by the sea", "on the hill", "under the bridge", "at night")


def toy_sentences(count: int, seed: int = 0) -> list[str]:
    """`count` sentences: someone did something with some things, perhaps somewhere; 4 to 20 words.

    >>> toy_sentences(2)
    ['david carried the boat and the warm boat and the garden and the window .', 'elena painted the small lamp and the road and the lamp .']
    """
    generator = random.Random(seed)
    return [_sentence(generator) for _ in range(count)]


def _sentence(generator: random.Random) -> str:
    things = " and ".join(_thing(generator) for _ in range(generator.randint(1, 4)))
    place = f" {generator.choice(_PLACES)}" if generator.random() < 0.4 else ""
    return f"{generator.choice(_NAMES)} {generator.choice(_VERBS)} {things}{place} ."


def _thing(generator: random.Random) -> str:
    adjective = f"{generator.choice(_ADJECTIVES)} " if generator.random() < 0.4 else ""
    return f"the {adjective}{generator.choice(_NOUNS)}"
