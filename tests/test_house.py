# SPDX-License-Identifier: Apache-2.0
"""The project's own rules: imports, types, style, size, and a docstring for every module."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from utvm.paths import ROOT

PYTHON = sorted(
    [
        *ROOT.glob("*.py"),
        *(
            path
            for folder in ("utvm", "tests", "hil_tests", "benchmarks", "models", "docs")
            for path in (ROOT / folder).rglob("*.py")
        ),
    ]
)
PRODUCT = sorted((ROOT / "utvm").rglob("*.py"))
C = sorted(path for suffix in ("*.c", "*.h", "*.S") for path in (ROOT / "utvm").rglob(suffix))
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _run(*command: str) -> None:
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@functools.cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_style() -> None:
    _run(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".")
    _run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.slow
def test_types() -> None:
    _run(sys.executable, "-m", "mypy")


def test_imports_have_one_direction() -> None:
    _run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")


@pytest.mark.slow
def test_no_imports_form_a_circle() -> None:
    """Imports inside functions count, too: they hide a circle from Python, but not from a reader."""
    modules = {_module(path): path for path in PRODUCT}
    imports = {module: _imports_of(path, modules) for module, path in modules.items()}
    waiting = dict(imports)
    while independent := [module for module, wanted in waiting.items() if not wanted & waiting.keys()]:
        for module in independent:
            del waiting[module]
    assert not waiting, {module: sorted(wanted & waiting.keys()) for module, wanted in waiting.items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports_of(path: Path, modules: Collection[str]) -> set[str]:
    result = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            result |= {name if name in modules else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
    return result & set(modules) - {_module(path)}


def test_guides_table_of_the_compiler_lists_its_folders() -> None:
    guide = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", guide.partition("## Quantised")[0], re.MULTILINE)
    folders = [path.parent.name for path in (ROOT / "utvm" / "compiler").glob("*/__init__.py")]
    assert sorted(rows) == sorted(folders)
    # In the order of compilation: each folder imports only earlier ones.
    layers = re.search(r'containers = \["utvm.compiler"\]\nlayers = \[(.*?)\]', PYPROJECT, re.DOTALL)
    assert layers
    assert rows == [name for name in re.findall(r'"(\w+)"', layers[1])[::-1] if name in folders]


def test_file_has_at_most_500_lines() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in PYTHON + C}
    assert {path: count for path, count in lines.items() if count > 500} == {}


def test_function_has_at_most_60_lines() -> None:
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}: {node.name}")
        for path in PRODUCT
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.FunctionDef) and node.end_lineno
    ]
    assert max(functions) < (60, "")


def test_every_module_has_a_docstring() -> None:
    assert [str(path.relative_to(ROOT)) for path in PRODUCT if not ast.get_docstring(_parse(path))] == []


def test_tasks_file_is_short_and_lists_commands_only() -> None:
    assert len((ROOT / "tasks.py").read_text(encoding="utf-8").splitlines()) <= 60
    heavy = "{'docker', 'numpy', 'pydantic', 'pytest', 'tvm'}"
    _run(sys.executable, "-c", f"import sys, tasks; sys.exit(' '.join({heavy} & set(sys.modules)) or 0)")


def test_import_of_the_package_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'rich', 'tvm', 'utvm.boards', 'utvm.session'}"
    _run(sys.executable, "-c", f"import sys, utvm; sys.exit(' '.join({heavy} & set(sys.modules)) or 0)")


# Code that may start a Python, and the files that may contain it.
_STARTS_PYTHON = {
    "sys.executable": {"utvm/base/process/interpreter.py", "utvm/boards/described/pyocd.py"},
    # Separate environments: each is an argument of python_command.
    "'bin' / 'python'": {"utvm/environment/python_lock.py", "utvm/farm/client.py"},
    # TVM's own function, which starts Python itself.
    "rpc.Server": {"utvm/vta/__init__.py"},
}
_STARTS_PYTHON_ELSEWHERE = re.compile(
    r"multiprocessing\.(Process|Pool|get_context)|ProcessPoolExecutor|PopenWorker|runpy\.run_module"
    r"|['\"](/usr/bin/)?python[\d.]*['\"], ['\"]-"
)


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes the docstrings of a file."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return ast.Expr(ast.Constant(...)) if isinstance(node.value, ast.Constant) else node


def _code(path: Path) -> str:
    return ast.unparse(_WithoutDocstrings().visit(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.slow
def test_there_is_one_way_to_start_python() -> None:
    """All others have the current folder on the module search path."""
    paths = [*PRODUCT, *(ROOT / "hil_tests").rglob("*.py"), ROOT / "tasks.py"]
    code = {str(path.relative_to(ROOT)): _code(path) for path in paths}
    for start, files in _STARTS_PYTHON.items():
        assert {path for path, text in code.items() if start in text} == files, start
    elsewhere = {path for path, text in code.items() if _STARTS_PYTHON_ELSEWHERE.search(text)}
    # The second one forks, without another interpreter.
    assert elsewhere == {"utvm/base/process/interpreter.py", "utvm/hil/workers.py"}
    # A Python that ./inv starts is isolated, or first removes the current folder from the path.
    starts = re.findall(r"(?<![\w./-])(?:\S*/)?python3? +(-.*)", (ROOT / "inv").read_text(encoding="utf-8"))
    assert starts
    assert {options for options in starts if not options.startswith(("-I ", "--version"))} == set()
