# SPDX-License-Identifier: Apache-2.0
"""The notebooks of ``examples/`` run completely, in a real kernel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from utvm.environment.python_lock import locked_venv
from utvm.paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
_EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.validate(notebook)
nbformat.write(notebook, sys.argv[3])
"""


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_completely(notebook: Path, tmp_path: Path) -> None:
    environment = locked_venv(ROOT / "provision" / "notebooks.txt", "the notebooks", lambda _: None)
    # The kernel is from that environment; utvm and its dependencies are from this one.
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])
    executed = tmp_path / "done.ipynb"
    completed = subprocess.run(
        [environment / "bin" / "python", "-c", _EXECUTE, notebook, ROOT, executed],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    if notebook.stem == "evaluate":
        text = executed.read_text()
        # The model and the confusion matrix are shown as tables.
        assert "digits_int8 on VIRTUAL stm32f746" in text and "<b>accuracy 0.98" in text
        assert "memory plan of digits_int8" in text


def test_notebooks_are_stored_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for notebook in NOTEBOOKS:
        assert '"outputs": []' in notebook.read_text() and '"output_type"' not in notebook.read_text()
