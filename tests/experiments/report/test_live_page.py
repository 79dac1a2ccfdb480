"""The live page in a real browser: typing, dropping, sliding; its numbers are the library's; nothing leaves the machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from bayesattn.experiments.report.explorable import TEST, ImageRun, TextModel
from bayesattn.experiments.runs import configure, run
from helpers.browser import needs_browser, set_window, started_browser
from helpers.saved_models import save_classifier

# gradio itself is imported in the tests: it takes seconds, which a collection should not
pytestmark = [needs_browser, pytest.mark.skipif(find_spec("gradio") is None, reason="needs the extra explore")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with started_browser(tmp_path_factory.mktemp("browser"), performance="ALL") as driver:
        yield driver


def wait_for(browser: webdriver.Chrome, selector: str, text: str = "") -> str:
    """The text of the first such element, as soon as `text` is in it."""

    def found(_: webdriver.Chrome) -> str | bool:
        said = browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? null", selector)
        return said is not None and text in said and (said or True)

    return str(WebDriverWait(browser, 60).until(found))


def requested(browser: webdriver.Chrome) -> set[str]:
    """The hosts that pages of the web were asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    addresses = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return {address.split("/")[2].partition(":")[0] for address in addresses if address.startswith(("http", "ws"))}


def slide(browser: webdriver.Chrome, label: str, value: float) -> None:
    """Type a slider's number."""
    box = browser.find_element(By.CSS_SELECTOR, f"input[type=number][aria-label*='{label}']")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(str(value), Keys.ENTER)


def test_a_sentence_is_typed_and_the_threshold_moved(browser: webdriver.Chrome, tmp_path: Path) -> None:
    from bayesattn.experiments.report.live_page import live_page, served

    save_classifier(tmp_path / "a<b>", initializer_range=0.5)
    subject = TextModel(tmp_path / "a<b>")
    text = "good <b>film</b> ${value} {{value}}"
    answered = subject.look(text, 32)
    before = set(threading.enumerate())
    with served(live_page(subject), "127.0.0.1", 0) as address:
        set_window(browser, 390)
        browser.get(address)
        wait_for(browser, ".verdict", "Type a sentence.")
        browser.find_element(By.TAG_NAME, "textarea").send_keys(text, Keys.ENTER)
        highest = answered.prediction.mean.max().item()
        wait_for(browser, ".verdict", f"answers: its probability {highest:.3f} is not below 0.50")
        wait_for(browser, ".explorer [role=status]", "query 1 (good)")
        assert answered.explored is not None
        names = [word.text for word in browser.find_elements(By.CSS_SELECTOR, ".sentence button")]
        assert names == list(answered.explored.portrait.names)
        weights = next(iter(answered.explored.layers.values()))
        shown = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, ".weights td:nth-child(3)")]
        mean, deviation = weights.mean[0, 0].tolist(), weights.deviation[0, 0].tolist()
        assert shown == [f"{m:.3f} ± {d:.3f}" for m, d in zip(mean, deviation, strict=True)]
        widest = """const parts = [...document.querySelectorAll(".verdict *, .explorer > *")];
            return Math.max(...parts.map((part) => part.getBoundingClientRect().right));"""
        assert browser.execute_script(widest) <= 390
        slide(browser, "threshold", 0.99)
        wait_for(browser, ".verdict", f"abstains: its probability {highest:.3f} is below 0.99")
        assert browser.get_log("browser") == []
        assert requested(browser) == {"127.0.0.1"}
    assert [left for left in set(threading.enumerate()) - before if not left.daemon] == []


@pytest.mark.slow
def test_images_are_chosen_and_dropped(browser: webdriver.Chrome, tmp_path: Path) -> None:
    from bayesattn.experiments.report.live_page import live_page, served

    options = {
        "training": {"epochs": 1, "samples": 3, "train_share": 0.1},
        "task_options": {"hidden": 8, "feedforward": 8},
    }
    config = configure("digits", "bam-wf", **options)
    run(config, tmp_path)
    subject = ImageRun(tmp_path / config.name)

    def probability(image: object) -> str:
        return f"its probability {subject.look(image, 3).prediction.mean.max().item():.3f} "  # pyright: ignore[reportArgumentType]

    picture = Image.effect_noise((40, 30), 80).convert("RGB")
    picture.save(tmp_path / "dropped.png")
    with served(live_page(subject), "127.0.0.1", 0) as address:
        set_window(browser, 1200, "dark")
        browser.get(address)
        wait_for(browser, ".verdict", probability(subject.example(TEST, 1)[0]))
        assert len(browser.find_elements(By.CSS_SELECTOR, ".patches button")) == 16
        browser.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(tmp_path / "dropped.png"))
        wait_for(browser, ".verdict", probability(subject.fitted(picture)))
        assert "Right is" not in browser.find_element(By.CSS_SELECTOR, ".verdict").text
        slide(browser, "which image", 7)
        wait_for(browser, ".verdict", probability(subject.example(TEST, 7)[0]))
        assert "Right is" in browser.find_element(By.CSS_SELECTOR, ".verdict").text
        WebDriverWait(browser, 60).until(
            lambda _: not browser.find_elements(By.CSS_SELECTOR, "[data-testid=image] img")
        )
        slide(browser, "samples", 5)
        wait_for(browser, ".verdict", "because the 5 samples disagree")
        severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert severe == []  # gradio warns of a method of its own that is not implemented
        assert requested(browser) == {"127.0.0.1"}


def test_an_address_that_cannot_be_used_is_refused() -> None:
    import gradio

    from bayesattn.experiments.report.live_page import served

    with gradio.Blocks(analytics_enabled=False) as page:
        pass
    for host, port, message in (
        ("127.0.0.1", 70_000, r"port=70000 is none: take 0 \(a free one\) to 65535"),
        ("192.0.2.1", 0, r"host='192\.0\.2\.1', port=0 cannot be used .*a host that is an address of this machine"),
    ):
        with pytest.raises(ValueError, match=message), served(page, host, port):
            pass
