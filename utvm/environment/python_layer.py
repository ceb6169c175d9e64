# SPDX-License-Identifier: Apache-2.0
"""The layer of Python packages: a virtual environment, laid out from the locked wheels without running a program.

The interpreter is Debian's, of the layer below. Nothing is compiled to bytecode: a file is what its wheel has.
"""

import fnmatch
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

from utvm.environment.layer import Layer, compose, members_of_tree
from utvm.environment.python_lock import Wheel
from utvm.environment.recipe import PythonPart
from utvm.environment.store import Store

PLACE = "/opt/utvm"
"""Where the virtual environment is in the image."""
CHECKOUT = "/utvm"
"""Where a container has the checkout."""


def make_python_layer(
    python: PythonPart, wheels: Sequence[Wheel], store: Store, folder: Path, epoch: int, files: Mapping[str, str]
) -> Layer:
    """Lay the packages out and write the layer, ``python.tar``, into a folder.

    Args:
        files: other files of the layer, by their names below its place, with their content.
    """
    tree = folder / "venv"
    packages = tree / "lib" / f"python{python.version}" / "site-packages"
    packages.mkdir(parents=True)
    (tree / "bin").mkdir()
    for name in ("python", "python3"):
        (tree / "bin" / name).symlink_to(f"/usr/bin/python{python.version}")
    (tree / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8")
    # The checkout that a container has is importable from everywhere, without being installed.
    (packages / "utvm.pth").write_text(f"{CHECKOUT}\n", encoding="utf-8")
    for wheel in wheels:
        # The name says what a wheel is for; in the store it is called after its hash.
        named = folder / wheel.file
        named.symlink_to(store.verified(wheel))
        with WheelFile.open(named) as source:
            install(source, _destination(tree, packages, source.distribution), additional_metadata={})
        named.unlink()
    for path in sorted(packages.rglob("*")):
        below = path.relative_to(packages).as_posix()
        if any(fnmatch.fnmatchcase(below, pattern) for pattern in python.leave_out) and not path.is_dir():
            path.unlink()
    for name, content in files.items():
        (tree / name).write_text(content, encoding="utf-8")
    layer = compose(members_of_tree(tree, PLACE.lstrip("/")), folder / "python.tar", epoch)
    shutil.rmtree(tree)
    return layer


def _destination(tree: Path, packages: Path, distribution: str) -> SchemeDictionaryDestination:
    places = {
        "purelib": packages,
        "platlib": packages,
        "headers": tree / "include" / distribution,
        "scripts": tree / "bin",
        "data": tree,
    }
    return SchemeDictionaryDestination(
        {kind: str(place) for kind, place in places.items()},
        interpreter=f"{PLACE}/bin/python",
        script_kind="posix",
        bytecode_optimization_levels=(),
    )
