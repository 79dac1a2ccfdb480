"""Rows: sums that leave out what is masked, against plain loops."""

from __future__ import annotations

import torch

from bayesattn.posteriors.rows import DenseRows

SHAPE = (2, 3, 4, 5)
ALLOWED = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(1)) > 0.4
ALLOWED[0, 0, 2] = False
COUNTED = torch.tensor([[True, True, True, False], [True, False, True, True]])


def test_every_sum_is_that_of_a_loop() -> None:
    rows = DenseRows(SHAPE, ALLOWED, COUNTED)
    pairs = torch.randn(SHAPE)
    per_row = torch.randn(2, 3, 4, 1)
    sums = torch.zeros(2, 3, 4)
    totals, row_totals = torch.zeros(2), torch.zeros(2)
    for b in range(2):
        for h in range(3):
            for q in range(4):
                keys = [k for k in range(5) if ALLOWED[b, 0, q, k]]
                sums[b, h, q] = sum(pairs[b, h, q, k] for k in keys)
                if keys and COUNTED[b, q]:
                    totals[b] += sums[b, h, q]
                    row_totals[b] += per_row[b, h, q, 0]
                if keys:
                    expected = pairs[b, h, q, keys].softmax(0)
                    assert torch.allclose(rows.softmax(pairs)[b, h, q, keys], expected)
                    assert torch.allclose(rows.log_softmax(pairs)[b, h, q, keys], expected.log(), atol=1e-6)
                    assert rows.sizes(pairs)[b, 0, q, 0] == len(keys)
    assert torch.allclose(rows.sum(pairs).squeeze(-1), sums, atol=1e-6)
    assert torch.allclose(rows.total_of_pairs(pairs), totals, atol=1e-5)
    assert torch.allclose(rows.total_of_rows(per_row), row_totals, atol=1e-5)


def test_counts_come_from_a_one() -> None:
    one = torch.ones(())
    rows = DenseRows(SHAPE, ALLOWED, COUNTED)
    pairs = [(ALLOWED[b, 0] & COUNTED[b][:, None]).sum() * 3 for b in range(2)]
    filled = [(ALLOWED[b, 0].any(-1) & COUNTED[b]).sum() * 3 for b in range(2)]
    assert rows.total_of_pairs(one).tolist() == [float(count) for count in pairs]
    assert rows.total_of_rows(one).tolist() == [float(count) for count in filled]
    assert DenseRows(SHAPE).total_of_pairs(one).tolist() == [60.0, 60.0]
    assert DenseRows(SHAPE).sizes(one).item() == 5.0


def test_an_empty_row_is_zero_with_zero_gradient() -> None:
    rows = DenseRows(SHAPE, ALLOWED)
    pairs = torch.randn(SHAPE, requires_grad=True)
    for weights in (rows.softmax(pairs), rows.log_softmax(pairs)):
        assert (weights[0, :, 2] == 0).all()
        (gradient,) = torch.autograd.grad(weights.square().sum(), pairs)
        assert gradient.isfinite().all()
        assert (gradient[0, :, 2] == 0).all()
