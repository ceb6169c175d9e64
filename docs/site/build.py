# SPDX-License-Identifier: Apache-2.0
"""``docs.site``: the documentation as a web site that works offline, and the README's terminal.

The repository's pages keep their paths, so that links hold; pages of commands and errors are generated. mkdocs
checks every link, in its own environment with the packages locked by ``provision/docs.txt``.
``python -m docs.site.build`` redraws the terminal, docs/img/hil.svg, from a run on the virtual stm32f746.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from invoke.collection import Collection
from jinja2 import FileSystemLoader
from rich.console import Console
from rich.text import Text

from docs.site.maps import memory_maps
from utvm import __version__, errors, paths
from utvm.base.process import run_tool
from utvm.base.storage.files import check_folder
from utvm.base.text.templates import templates_of
from utvm.cli.output import OUT, print_steps
from utvm.environment.python_lock import locked_venv
from utvm.errors import BoardError, ConfigError, UtvmError

LOCK = paths.ROOT / "provision" / "docs.txt"
_CONFIGURATION = paths.ROOT / "docs" / "site"
_WIDTH = 100
_BRIEF = re.compile(r"^\[ *\d+/\d+\] ")
_SHOWN_TESTS = 6
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # Would be fetched from another host.
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


def build(output: Path) -> None:
    check_folder(output)
    if output.exists() and any(output.iterdir()) and not (output / "search").is_dir():
        raise ConfigError(f"{output} has files that are no site", "name a folder that is new or empty")
    with print_steps() as say:
        _build(output, say)
    OUT.print(f"site: {output / 'index.html'}")


def _build(output: Path, say: Callable[[str], None]) -> None:
    mkdocs = locked_venv(LOCK, "the site's generator", say) / "bin" / "mkdocs"
    say("gathering the pages")
    with tempfile.TemporaryDirectory(prefix="utvm-site-") as scratch:
        source = Path(scratch)
        shutil.copytree(
            _CONFIGURATION,
            source,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("build.py", "maps.py", "*.j2", "__pycache__"),
        )
        gather(source / "pages")
        for path in (*_CONFIGURATION.glob("*.js"), *_CONFIGURATION.glob("*.css")):
            shutil.copyfile(path, source / "pages" / path.name)
        say("building the site")
        run = subprocess.run(
            [mkdocs, "build", "--quiet", "--site-dir", output.resolve()],
            cwd=source,
            env={
                **os.environ,
                "UTVM_SOURCES": str(paths.ROOT),
                "UTVM_VERSION": f"utvm {__version__}",
                "NO_MKDOCS_2_WARNING": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if run.returncode:
        raise ConfigError(f"the site cannot be built:\n{run.stdout.strip()}", "mend the pages that it names")


def gather(folder: Path) -> None:
    """Copy the repository's pages and the files that they link to, and write the generated pages."""
    listed = run_tool(["git", "-C", paths.ROOT, "ls-files", "-z", "*.md"], error=ConfigError).split("\0")
    # Templates are not pages.
    pages = [Path(name) for name in listed if name and "templates" not in name and (paths.ROOT / name).is_file()]
    for path in {*pages, *(linked for page in pages for linked in _links(page))}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(paths.ROOT / path, folder / path)
    (folder / "docs" / "commands.md").write_text(_commands(), encoding="utf-8")
    (folder / "docs" / "errors.md").write_text(_error_kinds(), encoding="utf-8")
    (folder / "docs" / "maps.md").write_text(memory_maps(), encoding="utf-8")


def _links(page: Path) -> Iterator[Path]:
    """Yield the existing files that a page links to; mkdocs reports the others."""
    for link in _LINK.findall((paths.ROOT / page).read_text(encoding="utf-8")):
        path = Path(os.path.normpath(page.parent / link))
        if (paths.ROOT / path).is_file():
            yield path


def namespace() -> Collection:
    """Return all commands, as in ``tasks.py``."""
    sys.path.insert(0, str(paths.DATA))
    try:
        return cast(Collection, __import__("tasks").namespace)
    finally:
        del sys.path[0]


def _commands() -> str:
    known = namespace()
    contexts = sorted(known.to_contexts(), key=lambda context: str(context.name))
    template = templates_of(FileSystemLoader(_CONFIGURATION)).get_template("commands.md.j2")
    return template.render(commands=[(known[str(context.name)], context) for context in contexts], cell=_cell)


def _error_kinds() -> str:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, UtvmError)]
    return templates_of(FileSystemLoader(_CONFIGURATION)).get_template("errors.md.j2").render(kinds=kinds)


def _cell(text: object) -> str:
    return " ".join(str(text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def record(words: list[str], output: Path) -> None:
    """Run ``./inv`` and draw its output as an SVG, with the first few lines of tests only."""
    environment = {**os.environ, "COLUMNS": str(_WIDTH)}
    run = subprocess.run(
        [paths.COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=paths.ROOT,
        check=False,
    )
    if run.returncode:
        raise BoardError(f"./inv {' '.join(words)} ended with exit code {run.returncode}", run.stdout[-500:])
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(f"$ ./inv {' '.join(words)}", style="bold", highlight=False)
    for line in _shorten(run.stdout.replace(str(paths.ROOT), ".").splitlines()):
        console.print(_style(line), no_wrap=True, overflow="ellipsis")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(_FONT.sub("", console.export_svg(title="utvm")), encoding="utf-8")


def _shorten(lines: list[str]) -> list[str]:
    """Keep only the first tests, and note how many were left out."""
    tests = [number for number, line in enumerate(lines) if _BRIEF.match(line)]
    hidden = set(tests[_SHOWN_TESTS:])
    text_lines: list[str] = []
    for number, line in enumerate(lines):
        if number not in hidden:
            text_lines.append(line)
        elif number == tests[_SHOWN_TESTS]:
            text_lines.append(f"… {len(hidden)} more tests")
    return text_lines


def _style(line: str) -> Text:
    style = "bold green" if line.startswith("PASSED") else "dim" if line.startswith(("…", "[")) else ""
    return Text(line, style=style)


if __name__ == "__main__":
    record(["hil", "--board", "stm32f746", "--virtual"], paths.ROOT / "docs" / "img" / "hil.svg")
