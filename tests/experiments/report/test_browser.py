"""The report in a real browser: it loads without errors, its controls work, its numbers are those of the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import Page, write_page
from bayesattn.experiments.tables.summary import summarise
from helpers.browser import needs_browser, set_window, started_browser
from helpers.report_cases import MODELS, SENTENCE, page
from helpers.table_cases import RESULTS, TABLE

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with started_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def opened(browser: webdriver.Chrome, tmp_path: Path) -> webdriver.Chrome:
    browser.get(write_page(page(), tmp_path / "report.html").as_uri())
    return browser


def choose(browser: webdriver.Chrome, name: str, text: str) -> None:
    Select(browser.find_element(By.NAME, name)).select_by_visible_text(text)


def shown_weights(browser: webdriver.Chrome) -> list[str]:
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, ".weights td:nth-child(3)")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_loads_without_errors_and_fits_the_window(
    browser: webdriver.Chrome, tmp_path: Path, scheme: str, width: int
) -> None:
    set_window(browser, width, scheme)
    browser.get(write_page(page(), tmp_path / "report.html").as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background[4:-1].split(",")) / 3
    assert (brightness > 200) == (scheme == "light")


def test_what_comes_from_outside_is_shown_and_not_run(opened: webdriver.Chrome) -> None:
    assert opened.title == "A <report>"
    assert SENTENCE[2] in opened.find_element(By.CSS_SELECTOR, ".examples").text


def test_the_explorer_shows_what_is_chosen(opened: webdriver.Chrome) -> None:
    for model, example, layer, head in (("first", 0, "layer 0", 0), ("second", 1, "layer 1", 1)):
        chosen = MODELS[model][example]
        choose(opened, "model", model)
        choose(opened, "example", chosen.title)
        choose(opened, "layer", layer)
        choose(opened, "head", str(head + 1))
        weights = chosen.layers[layer]
        mean, deviation = weights.mean[head, 0], weights.deviation[head, 0]
        expected = [f"{m:.3f} ± {d:.3f}" for m, d in zip(mean.tolist(), deviation.tolist(), strict=True)]
        assert shown_weights(opened) == expected
        prior = [cell.text for cell in opened.find_elements(By.CSS_SELECTOR, ".weights td:nth-child(4)")]
        assert prior == [f"{value:.3f}" for value in weights.prior[head, 0].tolist()]
    patches = opened.find_elements(By.CSS_SELECTOR, ".patches button")
    assert len(patches) == 4
    patches[2].click()
    assert "query 3" in opened.find_element(By.CSS_SELECTOR, "[role=status]").text


def test_a_sentence_is_coloured_by_its_weights(opened: webdriver.Chrome) -> None:
    choose(opened, "example", "a sentence")
    words = opened.find_elements(By.CSS_SELECTOR, ".sentence button")
    assert [word.text for word in words] == list(SENTENCE)
    assert not opened.find_elements(By.CSS_SELECTOR, ".patches button")
    words[2].click()
    assert "query 3" in opened.find_element(By.CSS_SELECTOR, "[role=status]").text
    weights = MODELS["first"][0].layers["layer 0"]
    strengths = opened.execute_script(
        "return [...document.querySelectorAll('.sentence button')].map((word) => +word.style.getPropertyValue('--w'))"
    )
    mean = weights.mean[0, 2]
    assert strengths == pytest.approx((mean / mean.max()).tolist(), abs=1e-3)


def test_the_squares_are_all_weights_of_a_head_and_a_click_chooses_the_query(opened: webdriver.Chrome) -> None:
    choose(opened, "head", "2")
    weights = MODELS["first"][0].layers["layer 0"]
    for place, values in enumerate((weights.mean[1], weights.deviation[1])):
        alphas = opened.execute_script(
            """const canvas = document.querySelectorAll(".maps canvas")[arguments[0]], width = canvas.width, size = width / 4;
            const data = canvas.getContext("2d").getImageData(0, 0, width, width).data;
            const alpha = (x, y) => data[4 * ((y + 0.5) * size * width + (x + 0.5) * size) + 3] / 255;
            return [0, 1, 2, 3].map((y) => [0, 1, 2, 3].map((x) => alpha(x, y)));""",
            place,
        )
        for shown, row in zip(alphas, (values / values.max()).tolist(), strict=True):
            assert shown == pytest.approx(row, abs=0.01)
        caption = opened.find_elements(By.CSS_SELECTOR, ".maps figcaption")[place].text
        assert caption.endswith(f"up to {values.max().item():.3f}")
    canvas = opened.find_elements(By.CSS_SELECTOR, ".maps canvas")[0]
    webdriver.ActionChains(opened).move_to_element(
        canvas
    ).click().perform()  # the middle: where the third of four rows begins
    assert "query 3" in opened.find_element(By.CSS_SELECTOR, "[role=status]").text


def test_the_explorer_works_with_the_keyboard(opened: webdriver.Chrome) -> None:
    weights = MODELS["first"][0].layers["layer 0"]
    slider = opened.find_element(By.NAME, "query")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert shown_weights(opened)[0].startswith(f"{weights.mean[0, 1, 0].item():.3f}")
    for draw in range(3):
        slider.send_keys("n")
        assert shown_weights(opened) == [f"{value:.3f}" for value in weights.samples[draw, 0, 1].tolist()]
    status = opened.find_element(By.CSS_SELECTOR, "[role=status]")
    assert "sample 3 of 3" in status.text
    slider.send_keys("p")
    assert "sample 2 of 3" in status.text
    slider.send_keys("m")
    assert "mean of 3 samples" in status.text


def test_the_numbers_of_a_table_are_those_of_its_file(browser: webdriver.Chrome, tmp_path: Path) -> None:
    (part,) = summarise(TABLE, RESULTS)
    browser.get(write_page(Page("A table", "", (sections.table(part),)), tmp_path / "table.html").as_uri())
    runs = [run["metrics"]["log_likelihood"] for run in RESULTS.of("toy-m1", "mle")]
    mean = sum(runs) / len(runs)
    rows = {
        row.find_element(By.CSS_SELECTOR, "td").text: row for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    }
    shown = rows["mle"].find_element(By.CSS_SELECTOR, "td.ours").text
    assert shown.split(" ± ")[0] == f"{mean:.2f}".replace("-", "−")
    dot = browser.find_element(By.CSS_SELECTOR, "circle.ours title")
    assert float(dot.get_attribute("textContent").removeprefix("ours: ")) == pytest.approx(
        RESULTS.floors["toy-m1"]["log_likelihood"], rel=1e-4
    )
    assert browser.get_log("browser") == []
