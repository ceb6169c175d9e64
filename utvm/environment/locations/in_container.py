# SPDX-License-Identifier: Apache-2.0
"""A place: a container of the frozen environment."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from utvm.environment import container, engine
from utvm.environment.container import Extra
from utvm.environment.locations.remote_command import RemoteCommand
from utvm.environment.making import image_in
from utvm.environment.python_layer import CHECKOUT
from utvm.environment.store import Progress
from utvm.environment.usb import extra_of
from utvm.errors import ConfigError
from utvm.paths import ROOT

_OTHERS = PurePosixPath("/mnt")


class InContainer:
    """A container of the image for the checkout's locks, as a :class:`Place`.

    Args:
        say: is told what is being done, and nothing when that is done and the command begins.
    """

    own_usb = False
    own_boards = False

    def __init__(self, say: Progress) -> None:
        self._say = say

    def run(self, errand: RemoteCommand) -> int:
        """Run a command in it."""
        # The engine would make them as root.
        for folder in errand.fills:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"{folder}: cannot be made: {error.strerror}", "choose another folder"
                ) from error
        places = _called(errand.folders)
        more = {str(path): name for path, name in places.items() if ROOT not in path.parents}
        # Whoever drives the probe in there locks it for all of this computer.
        devices = extra_of([errand.wanted.probe]) if errand.wanted.probe else Extra()
        extra = dataclasses.replace(devices, folders={**devices.folders, **more})
        with engine.connected() as client:
            image = image_in(client, self._say)
            self._say("")
            return container.run(client, image, errand.command(places, CHECKOUT), extra)


def _called(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what a container calls some folders: what lies side by side does so there, under its own name."""
    parents = list(dict.fromkeys(path.parent for path in folders))
    return {
        path: str(
            PurePosixPath(CHECKOUT) / path.relative_to(ROOT)
            if ROOT in path.parents
            else _OTHERS / str(parents.index(path.parent)) / path.name
        )
        for path in folders
    }
