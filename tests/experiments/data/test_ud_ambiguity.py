"""Which sentences of a treebank are ambiguous, by hand."""

from __future__ import annotations

import torch

from bayesattn.experiments.data.ud_ambiguity import mark_ambiguous
from bayesattn.experiments.data.ud_ewt import PAD, PAD_TAG, RARE, TAGS, TaggedSentences

NOUN, VERB = TAGS.index("NOUN"), TAGS.index("VERB")
SURE, OFTEN, SELDOM = RARE, RARE + 1, RARE + 2


def treebank() -> TaggedSentences:
    """SURE is always a noun; OFTEN a verb two times in ten; SELDOM one time in ten. The rest is padding."""
    words = [(SURE, NOUN)] * 10 + [(OFTEN, NOUN)] * 8 + [(OFTEN, VERB)] * 2 + [(SELDOM, NOUN)] * 9 + [(SELDOM, VERB)]
    rows = torch.tensor(words).view(6, 5, 2)
    padded = torch.cat([rows, torch.tensor([PAD, PAD_TAG]).expand(6, 1, 2)], 1)
    return TaggedSentences(padded[..., 0], padded[..., 1], [])


def test_a_word_is_ambiguous_if_its_second_tag_is_one_in_five() -> None:
    tokens = torch.tensor(
        [
            [SURE, OFTEN, SURE, SURE, PAD],
            [SURE, SELDOM, SURE, SURE, PAD],
            [SURE, OFTEN, SURE, PAD, PAD],  # too short
            [SURE, OFTEN, SURE, RARE - 1, SURE],  # a rare word
            [SURE, SURE, SURE, SURE, RARE + 3],  # a word that training lacks has one tag at most
        ]
    )
    marks = mark_ambiguous(tokens, treebank())
    assert marks.chosen.tolist() == [True, True, False, False, True]
    assert marks.ambiguous.nonzero().tolist() == [[0, 1], [2, 1], [3, 1]]
