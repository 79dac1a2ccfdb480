"""Scores of captions against COCO's own evaluation code.

The figures in GOLDEN were computed once by pycocoevalcap 1.2 (Bleu, Rouge and Cider, its pure Python parts, and METEOR with
Java 17) on the captions below; the package itself, 104 MB of jars, is not needed here.
"""

from __future__ import annotations

import pytest

from bayesattn.experiments.tasks.caption_scores import bleu, caption_scores, cider_d, has_meteor, rouge_l

CAPTIONS = [
    "a dog runs through the snow",
    "two children play with a red ball in the grass",
    "a man climbs a rock",
    "a woman in a red coat stands in front of a building",
    "a a a dog dog jumps",
]
REFERENCES = [
    ["a brown dog runs through deep snow", "a dog is running in the snow", "the dog runs through snow"],
    [
        "two kids play with a ball on the grass",
        "children are playing with a red ball",
        "a boy and a girl kick a red ball in a park",
    ],
    ["a man is climbing a steep rock", "a rock climber on a cliff", "the man climbs a rock face with a rope"],
    [
        "a woman wearing a red coat stands outside a building",
        "a lady in red in front of a tall building",
        "a woman stands on the street",
    ],
    ["a dog jumps over a fence", "the black dog jumps", "a dog leaps over a hurdle in the air"],
]
GOLDEN_BLEU = [0.9487179486936227, 0.8183417732718307, 0.6333173360538344, 0.4796293188834897]
GOLDEN_ROUGE = [0.81333333, 0.74390244, 0.64721485, 0.73939394, 0.5]
GOLDEN_CIDER = [3.21832946, 2.66332564, 2.40646763, 2.45848716, 1.35540559]
GOLDEN_METEOR = 0.38155108928605046

made = [caption.split() for caption in CAPTIONS]
wanted = [[reference.split() for reference in each] for each in REFERENCES]


def test_scores_are_those_of_the_reference() -> None:
    assert [bleu(made, wanted, order) for order in (1, 2, 3, 4)] == pytest.approx(
        [100 * b for b in GOLDEN_BLEU], abs=1e-5
    )
    assert list(map(rouge_l, made, wanted)) == pytest.approx(GOLDEN_ROUGE, abs=1e-8)
    assert cider_d(made, wanted) == pytest.approx(GOLDEN_CIDER, abs=1e-7)


def test_all_together_in_percent() -> None:
    found = caption_scores(made, wanted)
    assert found["cider_d"] == pytest.approx(100 * sum(GOLDEN_CIDER) / 5, abs=1e-4)
    assert found["rouge_l"] == pytest.approx(100 * sum(GOLDEN_ROUGE) / 5, abs=1e-4)
    assert found["bleu_4"] == pytest.approx(100 * GOLDEN_BLEU[3], abs=1e-5)
    assert ("meteor" in found) == has_meteor()
    if has_meteor():
        assert found["meteor"] == pytest.approx(100 * GOLDEN_METEOR, abs=1e-3)


def test_perfect_and_hopeless_captions() -> None:
    perfect = [each[0] for each in wanted]
    assert bleu(perfect, wanted) == pytest.approx(100)
    assert rouge_l(perfect[0], wanted[0]) == pytest.approx(1)
    alone = [[each[0]] for each in wanted]
    assert cider_d(perfect, alone) == pytest.approx([10.0] * 5)
    hopeless = [["zebra"]] * 5
    assert bleu(hopeless, wanted) == 0
    assert rouge_l(hopeless[0], wanted[0]) == 0
    assert cider_d(hopeless, wanted) == [0.0] * 5
    assert cider_d([[]] * 5, wanted) == [0.0] * 5
    assert rouge_l([], wanted[0]) == 0


def test_an_image_may_have_fewer_references_than_another() -> None:
    fewer = [wanted[0][:1], *wanted[1:]]
    repeated = [[wanted[0][0]] * 3, *wanted[1:]]
    assert bleu(made, fewer) == bleu(made, repeated)
    with pytest.raises(ValueError, match="one caption for each image; got 5 for 4 images"):
        caption_scores(made, wanted[:4])
