"""Files of one's own: what the tutorials define is known to the command line and to the processes of a sweep."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.plugins import VARIABLE, load_plugins

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (TUTORIALS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_a_file_is_run_once_and_its_path_holds_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet.py").write_text(
        "from bayesattn.experiments.methods import METHODS\n"
        "from bayesattn.experiments.methods.baselines import MaximumLikelihood, MaximumLikelihoodOptions\n"
        "METHODS.add('plugged-in', 'for a test', MaximumLikelihoodOptions(), MaximumLikelihood)\n"
    )
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, f"quiet.py{os.pathsep}")
    load_plugins()
    assert METHODS.entry("plugged-in").description == "for a test"
    monkeypatch.chdir("/")
    load_plugins()  # a second run would add the name again, which the registry refuses
    assert os.environ[VARIABLE] == str(tmp_path / "quiet.py")


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.py"))
    with pytest.raises(
        FileNotFoundError, match=r"BAYESATTN_PLUGINS names .*gone.py, which is no file: correct the path"
    ):
        load_plugins()
    (tmp_path / "text.txt").write_text("no Python")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "text.txt"))
    with pytest.raises(ValueError, match=r"text.txt, which is no Python file: its name must end in .py"):
        load_plugins()
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "broken.py"))
    for _ in range(2):  # a file that failed is not taken for one that was loaded
        with pytest.raises(ValueError, match=r"broken.py, .* failed: ModuleNotFoundError: No module named 'a_module"):
            load_plugins()


@pytest.mark.slow
def test_the_files_of_the_tutorials_are_all_that_a_table_of_ones_own_needs(tmp_path: Path) -> None:
    task, table = (
        next(text for text in blocks("new-task-and-table.md") if text.count(word)) for word in ("TASKS.add", "add(\n")
    )
    weights, method = (
        next(text for text in blocks("new-posterior.md") if text.count(word)) for word in ("@register", "METHODS.add")
    )
    files = {"gamma_weights.py": weights + method, "election.py": task, "election_table.py": table}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = ("table", "election", "--budget", "small", "--methods", "mle", "attn-gamma", "--seeds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "bayesattn", *command],
        cwd=tmp_path,
        env=os.environ | {VARIABLE: os.pathsep.join(files), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ran = {json.loads(path.read_text())["config"]["method"] for path in (tmp_path / "runs").glob("*/result.json")}
    assert ran == {"mle", "attn-gamma"}
    assert re.search(r"attn-gamma +│ +−?\d", done.stdout)
    # a table's own results must be readable without anybody's files
    kept = json.loads((tmp_path / "results/election-small.json").read_text())
    assert [run["config"]["method"] for run in kept["runs"]] == ["mle"]
    assert "Not kept there, since they are no rows of election: attn-gamma." in done.stdout
