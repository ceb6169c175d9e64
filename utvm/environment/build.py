# SPDX-License-Identifier: Apache-2.0
"""From the lock to the container image, with its bill of materials and checksums: written whole, or not at all."""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from utvm.base.storage.cache import file_digest
from utvm.environment.image import NAME, Image, write_image
from utvm.environment.layers import Layers
from utvm.environment.locked import Locked
from utvm.environment.python_layer import PLACE
from utvm.environment.store import Progress
from utvm.environment.temporary_roots import draft


@dataclass(frozen=True)
class Built:
    """An image that was made, and the seconds that each step took."""

    image: Image
    folder: Path
    seconds: Mapping[str, float]


def build(locked: Locked, layers: Layers, output: Path, progress: Progress | None = None) -> Built:
    """Make the image of its layers, and write it beside its bill of materials and checksums.

    Args:
        output: the folder to write; an earlier image in it is replaced by the whole new one.
    """
    say = progress or (lambda _: None)
    below = layers.debian()
    above = layers.python(below)
    say("the image")
    begin = time.monotonic()
    with draft(output.parent) as folder:
        whole = folder / "image"
        whole.mkdir()
        image = write_image(
            [("Debian packages, from debian.lock", below), ("Python packages, from pylock.toml", above)],
            whole / "oci",
            created=locked.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            labels=locked.labels,
            place=PLACE,
            tags=tags(locked),
        )
        (whole / "sbom.cdx.json").write_text(layers.bill(below), encoding="utf-8")
        write_sums(whole)
        if output.exists():
            output.rename(folder / "earlier")
        whole.rename(output)
    seconds = {**layers.seconds, "image": time.monotonic() - begin}
    return Built(dataclasses.replace(image, layout=output / "oci"), output, seconds)


def tags(locked: Locked) -> tuple[str, ...]:
    """Return what the image is called in an engine: after its environment, and as the latest one."""
    return (f"{NAME}:{locked.digest[:12]}", f"{NAME}:latest")


def write_sums(folder: Path) -> None:
    """Write the checksums of all files, as ``sha256sum --check`` reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
