# SPDX-License-Identifier: Apache-2.0
"""``init``: write a small, complete project."""

import os
from pathlib import Path

from utvm.base.storage.files import write_whole
from utvm.cli.output import OUT
from utvm.errors import ConfigError
from utvm.paths import COMMAND, DATA, INSTALLED, ROOT

# File of the project: its template.
_TEMPLATES = {
    "utvm.yaml": "utvm.yaml",
    "hil/test_models.py": "models_suite.txt",
    ".github/workflows/hil.yaml": "github.yaml",
    ".gitlab-ci.yml": "gitlab.yaml",
    ".devcontainer/devcontainer.json": "devcontainer.json",
    ".vscode/tasks.json": "tasks.json",
}
_STARTING = Path(__file__).parent / "starting"
_MODEL = DATA / "models" / "digits"


def write_project(directory: str) -> None:
    folder = Path(directory).resolve()
    if not folder.is_dir() and os.path.lexists(folder):
        raise ConfigError(f"{directory}: is a file", "give a folder that does not yet exist")
    files = {name: (_STARTING / source).read_bytes() for name, source in _TEMPLATES.items()}
    files["models/digits.onnx"] = (_MODEL / "digits.onnx").read_bytes()
    files["models/digits.npz"] = (_MODEL / "samples.npz").read_bytes()
    files[".gitignore"] = b"/build/\n__pycache__/\n"
    if existing := [name for name in files if (folder / name).exists()]:
        raise ConfigError(f"{folder}: has {', '.join(existing)} already", "give a folder that does not yet exist")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content)
    command = COMMAND if INSTALLED else str(ROOT / "inv")  # from another folder
    OUT.print(f"{folder}: {len(files)} files. Next: cd {directory} && {command} hil")
