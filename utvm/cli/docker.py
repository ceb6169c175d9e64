# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/docker.yaml``."""

import contextlib
import shlex
from collections.abc import Mapping

from utvm import boards
from utvm.cli import choices
from utvm.cli.output import OUT, print_step, print_steps, show_progress
from utvm.environment import container, engine
from utvm.environment.builds import IMAGE_FOLDER, announce_image, check_key, ensure_image, make_image, sign
from utvm.environment.locked import load_lock_files
from utvm.probe.choice import probes_for

_MB = 1_000_000


def build(image: choices.ImageChoice, export_only: bool) -> None:
    check_key(image.sign)
    locked = load_lock_files()
    with contextlib.ExitStack() as stack:
        # Connect first: a missing engine is reported at once.
        client = None if export_only else stack.enter_context(engine.connect())
        if image.no_cache or not IMAGE_FOLDER.exists():
            announce_image(locked, print_step)
        step = stack.enter_context(show_progress("fetching"))
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


def run(command: str, board: str, probe: str) -> int:
    words, extra = shlex.split(command), None
    if board or probe:
        extra = container.usb_access(probes_for(boards.load_chip(board) if board else None, probe))
    with engine.connect() as client:
        with print_steps() as say:
            image = ensure_image(client, say)
        return container.run(client, image, words, extra) if words else container.shell(client, image, extra)
