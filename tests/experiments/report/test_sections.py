"""The curves of a report, by hand; and what may go wrong with a page."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import embedded, joined, write_page
from helpers.report_cases import MODELS, page, weights


def test_the_reliability_curve_by_hand() -> None:
    probabilities = torch.tensor([[0.91, 0.09], [0.93, 0.07], [0.3, 0.7], [0.45, 0.55]])
    labels = torch.tensor([0, 1, 1, 0])
    curve = sections.reliability_curve(probabilities, labels, bins=10)
    assert curve == [pytest.approx((0.55, 0.0, 1)), pytest.approx((0.7, 1.0, 1)), pytest.approx((0.92, 0.5, 2))]


def test_the_risk_coverage_curve_by_hand() -> None:
    uncertainty = torch.tensor([0.3, 0.1, 0.4, 0.2])
    wrong = torch.tensor([True, False, True, False])
    curve = sections.risk_coverage_curve(uncertainty, wrong)
    assert curve == [(0.25, 0.0), (0.5, 0.0), (0.75, pytest.approx(1 / 3)), (1.0, 0.5)]


def test_the_auroc_stands_beside_the_entropies() -> None:
    inside = torch.tensor([0.1, 0.2, 0.3, 0.4])
    section = sections.entropies({"a": inside}, {"a": {"noise": torch.tensor([0.25, 0.9])}}, 3)
    assert "noise: AUROC 0.750" in section.body


def test_weights_are_packed_exactly_enough() -> None:
    mean = weights(3, 2, 4, 0).mean
    numbers = np.frombuffer(base64.b64decode(sections._packed(mean)), "<u2") / 65535
    np.testing.assert_allclose(numbers, mean.flatten().numpy(), atol=1e-5)


def test_padding_is_cut_off() -> None:
    padded = weights(3, 2, 6, 0)
    batch = type(padded)(padded.samples.unsqueeze(1), padded.point.unsqueeze(0), padded.prior.unsqueeze(0))
    (example,) = sections.explored(["one"], [MODELS["first"][0].portrait], {"layer": batch})
    torch.testing.assert_close(example.layers["layer"].samples, padded.samples[..., :4, :4])
    torch.testing.assert_close(example.layers["layer"].prior, padded.prior[..., :4, :4])


def test_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    text = write_page(page(), tmp_path / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")


def test_json_cannot_end_its_element() -> None:
    assert "</script>" not in embedded({"name": "</script><script>alert(1)</script>"})


def test_pages_are_joined_with_their_names() -> None:
    both = joined([page(), page()])
    assert len(both.sections) == 2 * len(page().sections)
    assert both.sections[0].title == "A <report>: Figures"


def test_a_report_must_be_html(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"name it something\.html, not 'report\.pdf'"):
        write_page(page(), tmp_path / "report.pdf")
