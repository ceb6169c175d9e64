# SPDX-License-Identifier: Apache-2.0
"""The commands ``docker.*``."""

import contextlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from invoke.context import Context

from utvm.cli import choices, progress, task
from utvm.cli.output import OUT, print_step

if TYPE_CHECKING:
    from utvm.environment.container import ContainerAccess

_MB = 1_000_000

_PROBE = {
    "board": "pass the probes of this board to the container (default: no USB)",
    "probe": "pass the probe of this serial number to the container",
}


@task(
    example="docker.build --export-only",
    page="docs/environment.md",
    json=True,
    in_checkout=True,
    help={"export_only": "only write the image to build/environment; do not use the Docker engine"},
)
def build(_: Context, image: choices.ImageChoice, export_only: bool = False) -> None:
    """Build the environment's container image from the locks, as an OCI layout and in the Docker engine."""
    from utvm.environment import engine
    from utvm.environment.builds import IMAGE_FOLDER, announce_image, check_key, make_image, sign
    from utvm.environment.locked import load_lock_files

    check_key(image.sign)
    locked = load_lock_files()
    with contextlib.ExitStack() as stack:
        # Connect first: a missing engine is reported at once.
        client = None if export_only else stack.enter_context(engine.connect())
        if image.no_cache or not IMAGE_FOLDER.exists():
            announce_image(locked, print_step)
        step = stack.enter_context(progress.show("fetching"))
        result = make_image(locked, step, *image.source, image.no_cache)
        if client is not None and (image.no_cache or not engine.has_image(client, result)):
            step("loading it into the engine")
            engine.load_image(client, result)
    OUT.print(f"image        {result.digest}")
    OUT.print(f"environment  {locked.digest}")
    OUT.print(f"unpacked     {result.unpacked // _MB} MB")
    OUT.print(f"written to   {result.layout.parent}")
    if client is not None:
        OUT.print(f"in the engine as {' and '.join(result.tags)}")
    if image.sign:
        OUT.print(f"signature    {sign(result.layout.parent, image.sign, f'utvm environment {locked.digest}')}")
    OUT.results(
        {
            "digest": result.digest,
            "environment": locked.digest,
            "tags": result.tags,
            "bytes": {"layers": result.size, "unpacked": result.unpacked},
            "seconds": round_seconds(result.seconds),
        }
    )


def round_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {step: round(spent, 3) for step, spent in seconds.items()}


@task(
    example="docker.run './inv hil --board host'",
    page="docs/environment.md",
    in_checkout=True,
    positional=["command"],
    file_optional=True,
    help=_PROBE | {"command": "program and arguments, as one argument (default: an interactive shell)"},
)
def run(_: Context, command: str, board: str = "", probe: str = "") -> int:
    """Run a command, or a shell, in a container of the environment; returns the command's exit code."""
    from utvm.environment import container, engine
    from utvm.environment.builds import ensure_image

    words, extra = shlex.split(command), _extra(board, probe)
    with engine.connect() as client:
        with progress.print_steps() as say:
            image = ensure_image(client, say)
        return container.run(client, image, words, extra) if words else container.shell(client, image, extra)


def _extra(board: str, probe: str) -> "ContainerAccess | None":
    from utvm import boards
    from utvm.environment.container import usb_access
    from utvm.probe.choice import probes_for

    if not board and not probe:
        return None
    return usb_access(probes_for(boards.load_chip(board) if board else None, probe))
