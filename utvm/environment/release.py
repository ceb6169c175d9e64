# SPDX-License-Identifier: Apache-2.0
"""A release of the environment: a folder that any web server serves, with all that others need, and its signature.

``utvm.json`` is the catalogue of the box for Vagrant, with ``utvm.box`` beside it; ``oci`` is the container image,
an OCI layout; ``sbom.cdx.json`` is the bill of materials. utvm's wheel and source archive are beside them, and
``NOTES.md`` has the digests of all. ``SHA256SUMS`` has the checksum of every file.
"""

from collections.abc import Sequence
from pathlib import Path

from utvm.environment.build import write_sums
from utvm.environment.image import link
from utvm.environment.temporary_roots import draft
from utvm.errors import ConfigError

_SUMS = "SHA256SUMS"


def write_release(sources: Sequence[Path], output: Path) -> Path:
    """Put what folders hold, such as an image and a box of the same environment, into one, and return it.

    The files are linked where the disk allows it, so that a release takes no room of its own.

    Args:
        sources: the folders that its parts were made in.
        output: the folder to write: new, or a release, which is replaced.
    """
    if output.exists() and any(output.iterdir()) and not (output / _SUMS).is_file():
        raise ConfigError(f"{output} holds something that is no release", "name a folder that is new or empty")
    output = output.resolve()
    with draft(output.parent) as folder:
        whole = folder / "release"
        whole.mkdir()
        for source in sources:
            for path in sorted(source.rglob("*")):
                if path.is_file() and not path.name.startswith(_SUMS):
                    target = whole / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    link(path, target)
        write_sums(whole)
        if output.exists():
            output.rename(folder / "earlier")
        whole.rename(output)
    return output
