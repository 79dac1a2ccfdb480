"""Figures of class probabilities, on cases that can be counted by hand."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.tasks.classification import auroc, figures


def test_figures_of_four_predictions() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
    found = figures(probabilities, torch.tensor([0, 0, 1, 1]))
    assert found["accuracy"] == 0.75
    # class 0: precision 2/3, recall 1; class 1: precision 1, recall 1/2; each weighs a half
    assert found["f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert found["ece"] == pytest.approx(0.15)  # all in one bin: confidence 0.9, accuracy 0.75


def test_auroc_counts_the_pairs_in_order_however_large_the_scores() -> None:
    assert auroc(torch.tensor([0.1, 0.2]), torch.tensor([0.15, 0.3])) == pytest.approx(0.75)
    assert auroc(torch.tensor([100.1, 100.2]), torch.tensor([100.15, 100.3])) == pytest.approx(0.75)
    assert auroc(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])) == pytest.approx(0.5)
