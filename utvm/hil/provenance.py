# SPDX-License-Identifier: Apache-2.0
"""Environment of a run, for its report: the requested one, and the installed tools."""

import importlib.metadata
import platform
import shlex
import shutil
from pathlib import Path

import utvm
from utvm.base.process.run import version_of
from utvm.base.storage.cache import content_key, tree_digest
from utvm.boards import Board
from utvm.errors import ProvisionError
from utvm.hil.results import Environment, Whereabouts
from utvm.paths import DATA, PACKAGE, PROVISION
from utvm.probe.pyocd.server import version as pyocd_version
from utvm.provenance.checkout import read_checkout
from utvm.provenance.lease import inherited_lease
from utvm.provenance.location import inspect_location
from utvm.provenance.lock import environment_digest


def digest(provision: Path = PROVISION) -> str:
    """Digest of the environment that this checkout requests, the same in all locations.

    It is a SHA-256 over the environment's lists and locks, and the sources of utvm and of the toolchain files.
    """
    return content_key(environment_digest(provision), tree_digest(PACKAGE), tree_digest(DATA / "toolchains"))


def describe(board: Board) -> Environment:
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
    location = inspect_location()
    lease = inherited_lease() if location.kind == "farm" else None
    place = Whereabouts(
        kind=location.kind,
        environment=location.environment,
        installed=location.installed,
        hostname=read_checkout().hostname,
        tools=tools,
        lease=lease.record if lease else None,
    )
    return Environment(digest(), environment_digest(), place)


def _drivers(board: Board) -> dict[str, str]:
    if not board.by_pyocd:
        return {"openocd": _openocd_version()}
    openocd = _openocd_version() if shutil.which("openocd") else "not installed"
    return {"openocd": openocd, "pyocd": pyocd_version()}


def _openocd_version() -> str:
    # OpenOCD prints its version on standard error.
    command = ["sh", "-c", f"{shlex.quote(_installed('openocd'))} --version 2>&1"]
    return version_of(command, timeout=10, error=ProvisionError, pattern=r"Open On-Chip Debugger (\S+)")


def _qemu_version(program: str) -> str:
    command = [_installed(program), "--version"]
    return version_of(command, timeout=10, error=ProvisionError, pattern=r"QEMU emulator version (\S+)")


def _installed(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ProvisionError(f"{program} is not installed", f"sudo apt-get install {program}")
    return path
