# SPDX-License-Identifier: Apache-2.0
"""utvm itself in a release: its wheel, its source archive, and notes that say what the release is made of."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import utvm
from utvm.base.process.run import run_tool
from utvm.base.storage.cache import file_digest
from utvm.environment.checkout import look
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import ROOT

NOTES = "NOTES.md"
_LINK_TO_A_PAGE = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")
_USE = """
In this folder, with the public key of whoever signed it:

```sh
minisign -V -p utvm.pub -m SHA256SUMS && sha256sum --check --quiet SHA256SUMS
pipx install ./{wheel}        # the command utvm
./inv vm.up --box FOLDER/utvm.json    # in a checkout: the box
```

The container image lies in `oci/`, as an OCI layout; its digest is that of its manifest.
"""


def changes(changelog: str, version: str = utvm.__version__) -> str:
    """Return what the changelog says of a version."""
    for section in changelog.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title.startswith(f"{version}, "):
            # Beside a release there are no pages that its links could lead to.
            text = _LINK_TO_A_PAGE.sub(r"\1", text.strip())
            return f"Of {title.removeprefix(f'{version}, ')}.\n\n{text}\n"
    raise ConfigError(
        f"CHANGELOG.md has no section '## {version}, DATE'",
        "cut the version: in CHANGELOG.md, and in utvm/__init__.py",
    )


def build_package(folder: Path) -> dict[str, str]:
    """Build wheel and source archive of this checkout into a folder; return their digests by name."""
    folder.mkdir(parents=True, exist_ok=True)
    run_tool([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, error=ProvisionError)
    return {path.name: f"sha256:{file_digest(path)}" for path in sorted(folder.iterdir())}


def write_notes(folder: Path, digests: Mapping[str, str], changed: str) -> None:
    """Write the notes of a release.

    Args:
        digests: of its parts, by what they are.
        changed: as :func:`changes` returns it.
    """
    sources = look(ROOT)
    of = f"Commit {sources.commit}{', with changes' if sources.dirty else ''}.\n\n" if sources.commit else ""
    use = _USE.format(wheel=next((name for name in digests if name.endswith(".whl")), "*.whl"))
    rows = "".join(f"| {name} | `{digest}` |\n" for name, digest in digests.items())
    text = f"# utvm {utvm.__version__}\n\n{of}{changed}\n## Digests\n\n| part | digest |\n|---|---|\n{rows}{use}"
    (folder / NOTES).write_text(text, encoding="utf-8")
