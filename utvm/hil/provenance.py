# SPDX-License-Identifier: Apache-2.0
"""What a run was made with, so that its figures can be made again: what was asked for, and what was there."""

import importlib.metadata
import platform
import shlex
import shutil
from pathlib import Path

import utvm
from utvm.base.process.run import version_of
from utvm.base.storage.cache import content_key, tree_digest
from utvm.boards import Board
from utvm.environment import checkout, location
from utvm.environment.locked import environment_digest
from utvm.environment.recipe import PROVISION
from utvm.errors import ProvisionError
from utvm.farm.lease import inherited_lease
from utvm.hil.results import Environment, Whereabouts
from utvm.paths import DATA, PACKAGE
from utvm.probe.pyocd.server import version as pyocd_version


def digest(provision: Path = PROVISION) -> str:
    """Return the digest of what this checkout asks for, in whatever place it is.

    It is a SHA-256 over the environment's lists and locks, and the sources of utvm and of the toolchain files.
    """
    return content_key(environment_digest(provision), tree_digest(PACKAGE), tree_digest(DATA / "toolchains"))


def describe(board: Board) -> Environment:
    """Look at the checkout and at the place in which this is."""
    tools = {
        "python": platform.python_version(),
        "tvm": importlib.metadata.version("apache-tvm"),
        **_drivers(board),
        "gcc": board.compiler.version,
        "unicorn": importlib.metadata.version("unicorn"),
        "utvm": utvm.__version__,
    }
    emulator = board.virtual.emulator
    # Where one can be plugged in, QEMU may not be needed: if it is, that is said when it is to be started.
    if emulator and (shutil.which(emulator.program) or not board.physical):
        tools["qemu"] = _qemu_version(emulator.program)
    seen = location.current_location()
    lease = inherited_lease() if seen.kind == "farm" else None
    told = lease.report_entry if lease else None
    place = Whereabouts(
        seen.kind, seen.environment, seen.installed, checkout.read_checkout().hostname, tools, told
    )
    return Environment(digest(), environment_digest(), place)


def _drivers(board: Board) -> dict[str, str]:
    """Return OpenOCD's version, and pyOCD's where that drives the board: then the other need not be there."""
    if not board.by_pyocd:
        return {"openocd": _openocd_version()}
    openocd = _openocd_version() if shutil.which("openocd") else "not installed"
    return {"openocd": openocd, "pyocd": pyocd_version()}


def _openocd_version() -> str:
    program = shutil.which("openocd")
    if program is None:
        raise ProvisionError("openocd is not installed", "sudo apt-get install openocd")
    # OpenOCD prints its version on standard error.
    command = ["sh", "-c", f"{shlex.quote(program)} --version 2>&1"]
    return version_of(command, timeout=10, error=ProvisionError, pattern=r"Open On-Chip Debugger (\S+)")


def _qemu_version(program: str) -> str:
    if shutil.which(program) is None:
        raise ProvisionError(f"{program} is not installed", f"sudo apt-get install {program}")
    pattern = r"QEMU emulator version (\S+)"
    return version_of([program, "--version"], timeout=10, error=ProvisionError, pattern=pattern)
