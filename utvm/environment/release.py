# SPDX-License-Identifier: Apache-2.0
"""A release of the environment: a folder that any web server serves, with all that others need, and its signature.

``utvm.json`` is the catalogue of the box for Vagrant, with ``utvm.box`` beside it; ``oci`` is the container image,
an OCI layout; ``sbom.cdx.json`` is the bill of materials. utvm's wheel and source archive are beside them, and
``NOTES.md`` has the digests of all. ``SHA256SUMS`` has the checksum of every file.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import utvm
from utvm.base.process.interpreter import python_command
from utvm.base.process.run import run_tool
from utvm.base.storage.cache import file_digest
from utvm.environment.image import link, write_sums
from utvm.environment.store import replace_folder
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import ROOT
from utvm.provenance.location import read_checkout

_SUMS = "SHA256SUMS"


def write_release(sources: Sequence[Path], output: Path) -> Path:
    """Merge folders, such as an image and a box of one environment, into a new or replaced release folder.

    Files are linked if possible, so that a release takes no space of its own.
    """
    if output.exists() and any(output.iterdir()) and not (output / _SUMS).is_file():
        raise ConfigError(f"{output} is not empty and not a release", "name a new or empty folder")
    output = output.resolve()
    with replace_folder(output) as (whole, _):
        for source in sources:
            for path in sorted(source.rglob("*")):
                if path.is_file() and not path.name.startswith(_SUMS):
                    target = whole / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    link(path, target)
        write_sums(whole)
    return output


def check_key(key: str) -> None:
    """Check minisign and a secret key before any work; an empty key means no signature."""
    if not key:
        return
    try:
        with Path(key).open("rb") as file:
            begin = file.read(200)
    except OSError as error:
        raise ConfigError(
            f"--sign {key}: cannot be read: {error.strerror}", "create a key: minisign -G"
        ) from error
    if b"secret key" not in begin.partition(b"\n")[0]:
        raise ConfigError(f"--sign {key}: is no secret key of minisign", "create one: minisign -G -s FILE")
    if shutil.which("minisign") is None:
        raise ProvisionError("minisign is not installed", "sudo apt-get install minisign")


def sign(folder: Path, key: str, comment: str) -> Path:
    """Sign a folder's list of checksums with minisign, which may ask for a password; return the signature."""
    sums = folder / _SUMS
    signature = sums.with_name(f"{_SUMS}.minisig")
    result = subprocess.run(
        ["minisign", "-S", "-q", "-s", key, "-m", sums, "-x", signature, "-t", comment], check=False
    )
    if result.returncode != 0:
        raise ProvisionError(f"{sums} is not signed: minisign ended with exit code {result.returncode}")
    return signature


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
    for section in changelog.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title.startswith(f"{version}, "):
            # A release has no documentation pages to link to.
            text = _LINK_TO_A_PAGE.sub(r"\1", text.strip())
            return f"Of {title.removeprefix(f'{version}, ')}.\n\n{text}\n"
    raise ConfigError(
        f"CHANGELOG.md has no section '## {version}, DATE'",
        "cut the version: in CHANGELOG.md, and in utvm/__init__.py",
    )


def build_package(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    run_tool(python_command("hatchling", "build", "-d", str(folder)), cwd=ROOT, error=ProvisionError)
    return {path.name: f"sha256:{file_digest(path)}" for path in sorted(folder.iterdir())}


def write_notes(folder: Path, digests: Mapping[str, str], changed: str) -> None:
    sources = read_checkout(ROOT)
    of = f"Commit {sources.commit}{', with changes' if sources.dirty else ''}.\n\n" if sources.commit else ""
    use = _USE.format(wheel=next((name for name in digests if name.endswith(".whl")), "*.whl"))
    rows = "".join(f"| {name} | `{digest}` |\n" for name, digest in digests.items())
    text = f"# utvm {utvm.__version__}\n\n{of}{changed}\n## Digests\n\n| part | digest |\n|---|---|\n{rows}{use}"
    (folder / NOTES).write_text(text, encoding="utf-8")
