"""The house's own rules: imports, types, style, size, and a docstring for every room."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from utvm.toolchain import ROOT

PYTHON = sorted(
    [
        *ROOT.glob("*.py"),
        *(
            path
            for folder in ("utvm", "tests", "hil_tests", "benchmarks", "models")
            for path in (ROOT / folder).rglob("*.py")
        ),
    ]
)
C = sorted(path for suffix in ("*.c", "*.h", "*.S") for path in (ROOT / "utvm").rglob(suffix))


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_style() -> None:
    _run(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".")
    _run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.slow
def test_types() -> None:
    _run(sys.executable, "-m", "mypy")


def test_imports_run_one_way() -> None:
    _run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")


@pytest.mark.parametrize("path", PYTHON + C, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_a_thought(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize(
    "path", sorted((ROOT / "utvm").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
