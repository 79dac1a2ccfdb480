"""The documentation as a site: strict, complete, and nothing in it comes from outside."""

from __future__ import annotations

import html
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

import bayesattn as ba
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.document import kept_files
from bayesattn.experiments.tables.results import read
from bayesattn.posteriors import POSTERIORS

ROOT = Path(__file__).parent.parent
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "docs" / "make_site.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def words(page: Path) -> str:
    """What a reader sees."""
    article = re.search(r"<article.*?</article>", page.read_text(), re.DOTALL)
    assert article is not None, page
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", article[0])).split())


def test_every_posterior_has_a_page_with_its_maths(site: Path) -> None:
    overview = words(site / "posteriors/index.html")
    for name, posterior in POSTERIORS.items():
        page = words(site / f"posteriors/{name}.html")
        assert posterior.__doc__ is not None
        formulas = [
            line.strip()
            for line in posterior.__doc__.split("Args:")[0].splitlines()
            if line.startswith(" " * 8) and " = " in line
        ]
        assert all(" ".join(formula.split()) in page for formula in formulas), name
        assert posterior.__name__ in overview
        assert ">>> " in page  # its example, as code
    assert "KL = Σ gamma_E alpha/k - alpha log(lambda)" in words(site / "posteriors/weibull.html")


def test_every_public_name_has_its_place(site: Path) -> None:
    anchors = {
        anchor
        for page in (*site.glob("reference/*.html"), *site.glob("posteriors/*.html"))
        for anchor in re.findall(r'id="([\w.]+)"', page.read_text())
    }
    modules = [ba, *(thing for name in ba.__all__ if inspect.ismodule(thing := getattr(ba, name)))]
    for module in modules:
        assert module is ba or module.__name__ in anchors
        for name in getattr(module, "__all__", ()):
            # a function that has the name of its package, as `convert`, is found under its file
            written_in = getattr(getattr(module, name), "__module__", module.__name__)
            assert {f"{module.__name__}.{name}", f"{written_in}.{name}"} & anchors, name


def test_every_paper_has_a_page_that_says_what_was_found(site: Path) -> None:
    pages = {page: words(page) for page in site.glob("papers/*.html")}
    assert len(pages) == 5
    found = {read(path).table for path in kept_files(ROOT / "results")}
    for table in TABLES.values():
        command = f"bayesattn table {table.name}"
        of_table = [text for text in pages.values() if command in text.split(" What we found")[1]]
        assert len(of_table) == 1, (
            f"{table.name} belongs on one page of docs/papers: name it in a findings comment there"
        )
        page = of_table[0]
        assert table.title in page
        if table.name in found:
            reading = ROOT / "results" / f"{table.name}.reading.md"
            assert not reading.exists() or "No reading has been written" not in page.split(table.title)[1][:100]
        else:
            assert page.index("Not run here yet") < page.rindex(table.title)
        if author := re.match(r"[A-Z]\. \w+", table.source):  # a table of our own has none
            assert author[0] in page


def test_nothing_is_fetched_from_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        fetched = re.findall(
            r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="?((?:https?:)?//[^"> ]+)', page.read_text()
        )
        assert not fetched, (page.name, fetched)
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//|@import", sheet.read_text()), sheet.name


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs Debian's chromium and chromium-driver")
def test_the_search_works_from_the_disk(site: Path, tmp_path: Path) -> None:
    options = webdriver.ChromeOptions()
    assert BROWSER is not None
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        browser.get((site / "index.html").as_uri())
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script("return document.readyState") == "complete")
        ActionChains(browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
        ActionChains(browser).pause(1).send_keys("Dirichlet").perform()
        # the theme draws its search into a shadow tree
        found = "return [...document.querySelectorAll('*')].map(each => each.shadowRoot?.innerHTML ?? '').join('')"
        WebDriverWait(browser, 60).until(lambda _: "posteriors/dirichlet.html" in browser.execute_script(found))
        assert browser.get_log("browser") == []
    finally:
        browser.quit()


def test_a_broken_link_fails_the_build(site: Path) -> None:
    folder = site.parent
    broken = folder / "docs" / "broken.md"
    broken.write_text("# Broken\n\n[nowhere](tour.md#no-such-heading)\n")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr
