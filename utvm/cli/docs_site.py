# SPDX-License-Identifier: Apache-2.0
"""``docs.site``: the documentation as a web site that works offline.

The repository's pages are copied with their paths, so that links hold; pages of commands and errors are generated.
mkdocs checks every link. It runs in an environment of its own, of the packages that ``provision/docs.txt`` locks.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.base.storage.files import check_folder
from utvm.cli import docs_pages
from utvm.cli.output import OUT
from utvm.cli.progress import telling
from utvm.environment.python_lock import locked_venv
from utvm.errors import ConfigError
from utvm.paths import ROOT

LOCK = ROOT / "provision" / "docs.txt"
_CONFIGURATION = ROOT / "docs" / "site"
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


def build(output: Path) -> None:
    """Build the site into a folder of its own."""
    check_folder(output)
    if output.exists() and any(output.iterdir()) and not (output / "search").is_dir():
        raise ConfigError(f"{output} has files that are no site", "name a folder that is new or empty")
    with telling() as say:
        _build(output, say)
    OUT.print(f"site: {output / 'index.html'}")


def _build(output: Path, say: Callable[[str], None]) -> None:
    mkdocs = locked_venv(LOCK, "the site's generator", say) / "bin" / "mkdocs"
    say("gathering the pages")
    with tempfile.TemporaryDirectory(prefix="utvm-site-") as scratch:
        source = Path(scratch)
        shutil.copytree(_CONFIGURATION, source, dirs_exist_ok=True)
        gather(source / "pages")
        shutil.copyfile(_CONFIGURATION / "iframe-worker.js", source / "pages" / "iframe-worker.js")
        say("building the site")
        run = subprocess.run(
            [mkdocs, "build", "--quiet", "--site-dir", output.resolve()],
            cwd=source,
            env={**os.environ, "UTVM_SOURCES": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if run.returncode:
        raise ConfigError(f"the site cannot be built:\n{run.stdout.strip()}", "mend the pages that it names")


def gather(folder: Path) -> None:
    """Copy the repository's pages and the files that they link to, and write the generated pages."""
    listed = run_tool(["git", "-C", ROOT, "ls-files", "-z", "*.md"], error=ConfigError).split("\0")
    # Templates are no pages.
    pages = [Path(name) for name in listed if name and "templates" not in name and (ROOT / name).is_file()]
    for path in {*pages, *(linked for page in pages for linked in _linked(page))}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    (folder / "docs" / "commands.md").write_text(docs_pages.commands(), encoding="utf-8")
    (folder / "docs" / "errors.md").write_text(docs_pages.error_kinds(), encoding="utf-8")


def _linked(page: Path) -> Iterator[Path]:
    """The existing files that a page links to; mkdocs reports the others."""
    for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        path = Path(os.path.normpath(page.parent / link))
        if (ROOT / path).is_file():
            yield path
