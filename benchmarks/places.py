# SPDX-License-Identifier: Apache-2.0
"""Measures the creation of the environment, and a suite's run in it, in each place.

- a plain ``docker build`` of an equivalent Dockerfile: the same packages by apt and pip, on mmdebstrap's Debian,
  without locks and caches; twice, to compare the images;
- the virtual machine: created, and started again from each of its states;
- the suite ``digits`` on the virtual STM32F746, in each place; in the machine also with the virtual board on this
  computer and its probe on the machine's USB.

``docker.build`` and ``vm.box`` must have been run, and an engine must answer. The machine is this checkout's own, and
is removed first and last. Run: ``.venv/bin/python benchmarks/places.py``.
"""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import docker
from rich.console import Console
from rich.table import Table

from benchmarks import seen
from utvm.environment.debian import mirrors
from utvm.environment.locked import load_lock_files
from utvm.paths import ROOT

_BASE = "utvm-benchmark-base"
_DOCKERFILE = f"""FROM {_BASE}
COPY sources.list /etc/apt/sources.list
COPY requirements.txt certificates /tmp/
RUN apt-get update && apt-get install --yes --no-install-recommends {{packages}}
RUN python3 -m venv /opt/utvm && /opt/utvm/bin/pip install --cert /tmp/certificates --no-deps --require-hashes \\
    -r /tmp/requirements.txt
"""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_STATES = {
    "anew": "made anew",
    "running": "running",
    "suspended": "suspended",
    "fresh": "from the snapshot, --fresh",
    "unused": "off and never used",
}
_PLACES = {
    "here": ("here", ("--virtual",)),
    "docker": ("--in docker", ("--virtual", "--in=docker")),
    "vm_usb": ("--in vm --usb st-link", ("--in=vm", "--usb=st-link")),
    "vm": ("--in vm", ("--virtual", "--in=vm")),
}
_SUITE = ("hil", "--board=stm32f746", "--suite=digits")


def _measure_command(*arguments: str) -> float:
    """Run one of the project's commands and return its seconds."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "utvm", *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


@dataclass(frozen=True)
class _PlainImage:
    """An image by ``docker build``: its name, its size in bytes, and the seconds that it took."""

    image: str
    size: int
    spent: float


def _plain_builds(client: docker.DockerClient, folder: Path) -> list[_PlainImage]:
    """Build the Dockerfile twice without a cache."""
    locked = load_lock_files()
    bases = mirrors(locked.recipe.debian)
    sources = [f"deb {bases[archive]} {suite} main" for suite, archive in locked.recipe.debian.suites.items()]
    (folder / "sources.list").write_text("\n".join(sources) + "\n")
    lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in locked.wheels)
    (folder / "requirements.txt").write_text("".join(lines))
    # A proxy of this computer's network may have its own certificate.
    shutil.copyfile(ssl.get_default_verify_paths().cafile or _CERTIFICATES, folder / "certificates")
    names = sorted({*locked.recipe.debian_packages, "python3-venv"})
    (folder / "Dockerfile").write_text(_DOCKERFILE.format(packages=" ".join(names)))
    begin = time.monotonic()
    subprocess.run(
        ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", folder / "base.tar", *sources],
        check=True,
        capture_output=True,
    )
    client.api.import_image_from_file(str(folder / "base.tar"), repository=_BASE)
    (folder / "base.tar").unlink()
    base_seconds = time.monotonic() - begin
    images = []
    for _ in range(2):
        begin = time.monotonic()
        image, _ = client.images.build(path=str(folder), nocache=True, rm=True, forcerm=True, network_mode="host")
        images.append(_PlainImage(str(image.id), image.attrs["Size"], base_seconds + time.monotonic() - begin))
    for name in {_BASE, *(build.image for build in images)}:
        client.images.remove(name)
    return images


def _measure_machine() -> list[tuple[str, float]]:
    """Create the machine, and start it from each state; return the commands with their seconds."""
    _measure_command("vm.destroy")
    rows = [("vm.up, made anew", _measure_command("vm.up")), ("vm.up, running", _measure_command("vm.up"))]
    rows.append(("vm.halt --suspend", _measure_command("vm.halt", "--suspend")))
    rows.append(("vm.up, suspended", _measure_command("vm.up")))
    rows.append(("vm.up, from the snapshot, --fresh", _measure_command("vm.up", "--fresh")))
    rows.append(("vm.halt", _measure_command("vm.halt")))
    rows.append(("vm.up, off and never used", _measure_command("vm.up")))
    rows.append(("vm.run true", _measure_command("vm.run", "true")))
    return rows


def _measure_suites() -> list[tuple[str, float]]:
    with tempfile.TemporaryDirectory() as reports:
        return [
            (f"hil --suite digits {place}", _measure_command(*_SUITE, *arguments, f"--report-dir={reports}"))
            for place, arguments in _PLACES.values()
        ]


def main() -> int:
    os.chdir(ROOT)
    table = Table("what", "s", box=None)
    client = docker.from_env(timeout=1800)
    with tempfile.TemporaryDirectory(prefix="utvm-benchmark-") as name:
        plain = _plain_builds(client, Path(name))
    for number, build in enumerate(plain, 1):
        table.add_row(f"plain docker build {number}", f"{build.spent:.0f}")
    try:
        machine, suites = dict(_measure_machine()), dict(_measure_suites())
        for row, seconds in (machine | suites).items():
            table.add_row(row, f"{seconds:.1f}")
    finally:
        _measure_command("vm.destroy")
    ups = {name: f"vm.up, {state}" for name, state in _STATES.items()}
    seen.keep(
        "places",
        {
            "docker_build_s": [round(build.spent) for build in plain],
            "docker_build_mb": round(plain[0].size / 1e6),
            "vm_up_s": {name: round(machine[row], 1) for name, row in ups.items()},
            "vm_suspend_s": round(machine["vm.halt --suspend"], 1),
            "vm_halt_s": round(machine["vm.halt"], 1),
            "digits_s": dict(zip(_PLACES, map(round, suites.values()), strict=True)),
        },
    )
    console = Console(soft_wrap=True)
    console.print(table)
    comparison = "the same image" if plain[0].image == plain[1].image else "two different images"
    images = ", ".join(f"{build.image[7:19]} of {build.size / 1e6:.0f} MB" for build in plain)
    console.print(f"the plain builds made {comparison}: {images}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
