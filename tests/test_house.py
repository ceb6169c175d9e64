# SPDX-License-Identifier: Apache-2.0
"""The house's own rules: imports, types, style, size, and a docstring for every room."""

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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_style() -> None:
    _run(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".")
    _run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.slow
def test_types() -> None:
    _run(sys.executable, "-m", "mypy")


def test_imports_run_one_way() -> None:
    _run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")


def test_no_files_import_each_other_in_a_circle() -> None:
    """Counts what is imported inside functions too, which hides a circle from Python and not from a reader."""
    modules = {_module(path): path for path in PRODUCT}
    imports = {module: _imported(path, modules) for module, path in modules.items()}
    waiting = dict(imports)
    while free := [module for module, wanted in waiting.items() if not wanted & waiting.keys()]:
        for module in free:
            del waiting[module]
    assert not waiting, {module: sorted(wanted & waiting.keys()) for module, wanted in waiting.items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, modules: Collection[str]) -> set[str]:
    found = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & set(modules) - {_module(path)}


def test_the_guide_s_table_of_the_compiler_is_its_folders() -> None:
    guide = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", guide.partition("## Quantised")[0], re.MULTILINE)
    folders = [path.parent.name for path in (ROOT / "utvm" / "compiler").glob("*/__init__.py")]
    assert sorted(rows) == sorted(folders)
    # In the order in which a model passes: each imports only what comes before it.
    layers = re.search(r'containers = \["utvm.compiler"\]\nlayers = \[(.*?)\]', PYPROJECT, re.DOTALL)
    assert layers
    assert rows == [name for name in re.findall(r'"(\w+)"', layers[1])[::-1] if name in folders]


def test_a_file_is_a_thought() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in PYTHON + C}
    assert {path: count for path, count in lines.items() if count > 500} == {}


def test_a_function_is_read_without_turning_the_page() -> None:
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}: {node.name}")
        for path in PRODUCT
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.FunctionDef) and node.end_lineno
    ]
    assert max(functions) < (60, "")


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path.relative_to(ROOT)) for path in PRODUCT if not ast.get_docstring(_parsed(path))] == []


def test_tasks_file_is_short_and_lists_commands_only() -> None:
    assert len((ROOT / "tasks.py").read_text(encoding="utf-8").splitlines()) <= 60
    heavy = "{'docker', 'numpy', 'pydantic', 'pytest', 'tvm'}"
    _run(sys.executable, "-c", f"import sys, tasks; sys.exit(' '.join({heavy} & set(sys.modules)) or 0)")


# What may start a Python, and whose it is there to say.
_STARTS_PYTHON = {
    "sys.executable": {"utvm/base/process/interpreter.py", "utvm/boards/described/pyocd.py"},
    # Environments of their own: each is an argument of python_command.
    "'bin' / 'python'": {"utvm/environment/python_lock.py", "utvm/farm/client.py"},
    # TVM's own door, which starts Python itself.
    "rpc.Server": {"utvm/vta/__init__.py"},
}
_STARTS_PYTHON_ELSEWHERE = re.compile(
    r"multiprocessing\.(Process|Pool|get_context)|ProcessPoolExecutor|PopenWorker|runpy\.run_module"
    r"|['\"](/usr/bin/)?python[\d.]*['\"], ['\"]-"
)


class _Code(ast.NodeTransformer):
    """What is left of a file without its documentation."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return ast.Expr(ast.Constant(...)) if isinstance(node.value, ast.Constant) else node


def _code(path: Path) -> str:
    return ast.unparse(_Code().visit(ast.parse(path.read_text(encoding="utf-8"))))


def test_there_is_one_way_to_start_python() -> None:
    """All others have the current folder on the module search path."""
    ours = [*PRODUCT, *(ROOT / "hil_tests").rglob("*.py"), ROOT / "tasks.py"]
    code = {str(path.relative_to(ROOT)): _code(path) for path in ours}
    for start, files in _STARTS_PYTHON.items():
        assert {path for path, text in code.items() if start in text} == files, start
    elsewhere = {path for path, text in code.items() if _STARTS_PYTHON_ELSEWHERE.search(text)}
    assert elsewhere == {"utvm/base/process/interpreter.py"}
    # Where ./inv starts one, it is isolated, or begins with what takes the current folder off the path.
    starts = re.findall(r"(?<![\w./-])(?:\S*/)?python3? +(-.*)", (ROOT / "inv").read_text(encoding="utf-8"))
    assert starts
    assert {each for each in starts if not each.startswith(("-I ", "--version"))} == set()
