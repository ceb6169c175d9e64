# SPDX-License-Identifier: Apache-2.0
"""Platforms: folders with ``platform.yaml`` and the files of a project that differ from platform to platform."""

from pathlib import Path
from typing import Literal

import jinja2
from pydantic import Field

from utvm.base.storage.config import Record, load_yaml
from utvm.errors import ConfigError

PLATFORMS = Path(__file__).parent / "platforms"
"""The folders of those that come with utvm."""

COMMON = Path(__file__).parent / "common"
"""Files that every project has."""

FILE = "platform.yaml"


class Platform(Record):
    """What a ``platform.yaml`` says. ``build`` and ``elf`` are filled in as files are, by templates.

    Attributes:
        says: what it is, in a few words.
        runtime: whose start-up code, port and linker script it is built with: utvm's for the board, or its own.
            With its own, the folder has C that provides what ``utvm.h`` asks of a port.
        flat: a folder that all C of the application and the runtime lies in, side by side, for builds that know no
            folders of headers; without it, they lie in folders.
        needs: program, or environment variable in capitals, to how one gets it.
        build: commands that build it, run in the project's folder.
        elf: the image that they make.
        options: name of what must be known when a project is made, to what it is.
        cpus: the CPUs that it is for, to a word for each, ``cpu_word`` in templates; empty for any.
    """

    says: str
    runtime: Literal["utvm", "own"]
    flat: str = ""
    needs: dict[str, str] = Field(default_factory=dict)
    build: tuple[tuple[str, ...], ...] = Field(min_length=1)
    elf: str
    options: dict[str, str] = Field(default_factory=dict)
    cpus: dict[str, str] = Field(default_factory=dict)


def platforms() -> tuple[str, ...]:
    """Return the names of those that come with utvm, sorted."""
    return tuple(sorted(file.parent.name for file in PLATFORMS.glob(f"*/{FILE}")))


def load_platform(name: str) -> tuple[Path, Platform]:
    """Return a platform's folder and what it says.

    Args:
        name: one of :func:`platforms`, or the path of a folder of one's own, with a slash in it.
    """
    folder = Path(name).resolve() if "/" in name else PLATFORMS / name
    known = f"platforms: {', '.join(platforms())}; or the path of a folder with a {FILE}"
    if not name or not (folder / FILE).is_file():
        raise ConfigError(f"there is no platform {name!r}", known)
    return folder, load_yaml(folder / FILE, Platform, known)


def rendered(folder: Path, values: dict[str, object]) -> dict[str, str]:
    """Return a folder's files, filled in: path to text. ``PROJECT`` in a file's name is the project's.

    A template may extend or include one of a platform that comes with utvm: ``cmake/CMakeLists.txt``.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, PLATFORMS]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["c"] = lambda text: str(text).replace("\\", "\\\\").replace('"', '\\"')
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == FILE:
            continue
        try:
            text = environment.get_template(name).render(values)
        except (jinja2.TemplateError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be filled in: {error}", "is a name in braces wrong?") from error
        files[name.removesuffix(".j2").replace("PROJECT", str(values["project"]))] = text
    return files


def filled(text: str, values: dict[str, object]) -> str:
    """Fill in a text of a ``platform.yaml``."""
    try:
        return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(values)
    except jinja2.TemplateError as error:
        raise ConfigError(f"{FILE}: {text!r} cannot be filled in: {error}") from error
