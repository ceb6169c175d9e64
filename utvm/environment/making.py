# SPDX-License-Identifier: Apache-2.0
"""Making what a place needs of the checkout's locks, where it is not there yet: the image, the machine's box."""

import contextlib
from collections.abc import Iterator, Sequence
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
# Minutes on two idle cores with nothing in the cache, as benchmarks/README.md has them, rounded up.
_IMAGE_MINUTES = 2
_BOX_MINUTES = 3
_TURN = 3600.0  # Seconds that somebody else's may be in the making.
_MB = 1_000_000


def make_image(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltImage:
    """Make the container image and write it to its folder in the checkout.

    Args:
        say: is told what is being done.
        archive, mirror: where package files come from, as :func:`utvm.environment.locked.fetch` takes them.
        anew: make every layer even if it is kept, and compare.
    """
    store = Store()
    fetch(locked, store, archive, mirror, say)
    return build(locked, Layers(locked, store, anew=anew, progress=say), IMAGE, say)


def make_box(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltBox:
    """Make the machine's box and write it to its folder in the checkout. As :func:`make_image`."""
    store = Store()
    fetch(locked, store, archive, mirror, say, machine=True)
    return build_box(locked, Layers(locked, store, anew=anew, progress=say), BOX, say)


def ensure_image(client: docker.DockerClient, say: Progress) -> str:
    """Return what the engine calls the image of the checkout's locks; it is made if the engine has none."""
    locked = load_locked()
    name = tags(locked)[0]
    if not engine.has_tag(client, name):
        with _alone(f"making the image {name}", say):
            # Somebody else may have made it while we waited.
            if not engine.has_tag(client, name):
                _announce("container image", locked.packages, _IMAGE_MINUTES, say)
                made = make_image(locked, say)
                say("handing it to the engine")
                engine.load_image(client, made.image)
    return name


def make_missing_box(locked: Locked, say: Progress) -> None:
    """Make the box of the checkout's locks, and say first how long that takes. Raises as :func:`make_image`."""
    _announce("box", locked.machine_packages, _BOX_MINUTES, say)
    make_box(locked, say)


def _announce(what: str, packages: Sequence[DebianPackage | Wheel], minutes: int, say: Progress) -> None:
    store = Store()
    missing = sum(package.size for package in packages if not store.has(package)) // _MB
    fetching = f", with {missing} MB to fetch" if missing else ""
    say(f"there is no {what} of the checkout's locks: making it, in {minutes} minutes on two idle cores{fetching}")


@contextlib.contextmanager
def _alone(what: str, say: Progress) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold(what, patience=_TURN, waiting=lambda who: say(f"waiting: {what}, {who}")))
        except BoardError as error:
            raise ProvisionError(error.message, "wait for its end") from None
        yield
