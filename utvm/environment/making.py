# SPDX-License-Identifier: Apache-2.0
"""Build the container image or the machine's box of the checkout's locks, if it is missing."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import docker

from utvm.base.storage.lock import hold
from utvm.environment import engine
from utvm.environment.box import BuiltBox, build_box
from utvm.environment.debian import DebianPackage
from utvm.environment.image import BuiltImage, build, tags
from utvm.environment.layers import Layers
from utvm.environment.locked import Locked, fetch, load_locked
from utvm.environment.python_lock import Wheel
from utvm.environment.store import Progress, Store
from utvm.errors import BoardError, ProvisionError
from utvm.paths import ROOT

IMAGE = ROOT / "build" / "environment"
BOX = ROOT / "build" / "box"
# On two idle cores with an empty cache (benchmarks/README.md), rounded up.
_IMAGE_MINUTES = 2
_BOX_MINUTES = 3
_LOCK_TIMEOUT = 3600.0  # Seconds that another process may take to build it.
_MB = 1_000_000


@contextlib.contextmanager
def hold_alone(what: str, hint: str, patience: float, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock of this computer, see :func:`utvm.base.storage.lock.hold`, or raise ProvisionError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold(what, patience=patience, waiting=waiting))
        except BoardError as error:
            raise ProvisionError(error.message, hint) from None
        yield


def make_image(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltImage:
    """Build the container image in its folder in the checkout.

    Args:
        archive, mirror: sources of package files, see :func:`utvm.environment.locked.fetch`.
        anew: rebuild cached layers, and compare.
    """
    store = Store()
    fetch(locked, store, archive, mirror, say)
    return build(locked, Layers(locked, store, anew=anew, progress=say), IMAGE, say)


def make_box(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltBox:
    """Build the machine's box in its folder in the checkout, see :func:`make_image`."""
    store = Store()
    fetch(locked, store, archive, mirror, say, machine=True)
    return build_box(locked, Layers(locked, store, anew=anew, progress=say), BOX, say)


def ensure_image(client: docker.DockerClient, say: Progress) -> str:
    """Tag of the image of the checkout's locks, which is built if the engine has none."""
    locked = load_locked()
    name = tags(locked)[0]
    if not engine.has_tag(client, name):
        what = f"making the image {name}"
        with hold_alone(what, "wait for its end", _LOCK_TIMEOUT, lambda who: say(f"waiting: {what}, {who}")):
            # Another process may have built it meanwhile.
            if not engine.has_tag(client, name):
                _announce("container image", locked.packages, _IMAGE_MINUTES, say)
                built = make_image(locked, say)
                say("loading it into the engine")
                engine.load_image(client, built.image)
    return name


def make_missing_box(locked: Locked, say: Progress) -> None:
    _announce("box", locked.machine_packages, _BOX_MINUTES, say)
    make_box(locked, say)


def _announce(what: str, packages: Sequence[DebianPackage | Wheel], minutes: int, say: Progress) -> None:
    store = Store()
    missing = sum(package.size for package in packages if not store.has(package)) // _MB
    fetching = f", with {missing} MB to fetch" if missing else ""
    say(f"there is no {what} of the checkout's locks: making it, in {minutes} minutes on two idle cores{fetching}")
