"""The shares of tags, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bayesattn.experiments.analysis.paper_figures import tag_shares
from bayesattn.experiments.analysis.paper_figures.base import Places
from bayesattn.experiments.data.ud_ewt import PAD, PAD_TAG, TAGS, TaggedSentences


def test_padding_does_not_count_and_the_most_frequent_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = torch.tensor([[TAGS.index(tag) for tag in ("DET", "NOUN", "NOUN", "X")]])
    sentences = TaggedSentences(torch.tensor([[7, 8, 9, PAD]]), tags, [])
    assert tags[0, 3] == PAD_TAG
    monkeypatch.setattr(tag_shares, "load_ud_ewt", lambda: (None, sentences, sentences, sentences))
    data, drawn = tag_shares.draw_tag_shares(Places(results=tmp_path, images=tmp_path))
    kept = json.loads(data.read_text())
    assert list(kept["shares"]["train"].items()) == [("NOUN", pytest.approx(2 / 3)), ("DET", pytest.approx(1 / 3))]
    assert kept["words"]["test"] == 3
    assert kept["padding"]["train"] == 0.25
    assert drawn.read_bytes()[:4] == b"\x89PNG"
