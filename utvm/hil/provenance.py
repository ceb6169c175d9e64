"""What a run was made with, so that its figures can be made again: versions, and one digest over everything."""

import importlib.metadata
import platform
import re
import shutil

import utvm
from utvm import process
from utvm.boards import AnyBoard, Board
from utvm.cache import content_key, tree_digest
from utvm.errors import ProvisionError
from utvm.hil.results import Environment
from utvm.toolchain import ROOT, Toolchain

_PYTHON_LOCK = ROOT / "provision" / "python.lock"


def describe(board: AnyBoard) -> Environment:
    """Look at this machine.

    The digest is a SHA-256 over the Python lock, the installed Debian packages with their versions, the tools'
    versions, and the sources of utvm and of the toolchain files. Two runs on an unchanged machine agree on it.

    Raises:
        ToolchainError: the board's cross compiler is not installed.
        ProvisionError: the Python lock cannot be read; OpenOCD, or the QEMU that the board is, is not installed.
    """
    tools = {
        "python": platform.python_version(),
        "tvm": importlib.metadata.version("apache-tvm"),
        "openocd": _openocd_version(),
        "gcc": Toolchain(board.toolchain).version,
        "unicorn": importlib.metadata.version("unicorn"),
        "utvm": utvm.__version__,
    }
    emulator = board.virtual.emulator if isinstance(board, Board) else None
    # Where one can be plugged in, QEMU may not be needed: if it is, that is said when it is to be started.
    if emulator and (shutil.which(emulator.program) or not (isinstance(board, Board) and board.physical)):
        tools["qemu"] = _qemu_version(emulator.program)
    try:
        lock = _PYTHON_LOCK.read_bytes()
    except OSError as error:
        raise ProvisionError(
            f"{_PYTHON_LOCK}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error
    digest = content_key(
        lock,
        _debian_packages(),
        *(f"{name} {version}" for name, version in sorted(tools.items())),
        tree_digest(ROOT / "utvm"),
        tree_digest(ROOT / "toolchains"),
    )
    return Environment(digest, tools)


def _openocd_version() -> str:
    program = shutil.which("openocd")
    if program is None:
        raise ProvisionError("openocd is not installed", "sudo apt-get install openocd")
    # OpenOCD prints its version on standard error.
    said = process.run(["sh", "-c", f"'{program}' --version 2>&1"], timeout=10, error=ProvisionError)
    found = re.search(r"Open On-Chip Debugger (\S+)", said)
    return found[1] if found else said.strip().splitlines()[0]


def _qemu_version(program: str) -> str:
    if shutil.which(program) is None:
        raise ProvisionError(f"{program} is not installed", f"sudo apt-get install {program}")
    said = process.run([program, "--version"], timeout=10, error=ProvisionError)
    found = re.search(r"QEMU emulator version (\S+)", said)
    return found[1] if found else said.strip().splitlines()[0]


def _debian_packages() -> str:
    """Return every installed package with its version, one a line; empty on a machine without dpkg."""
    if shutil.which("dpkg-query") is None:
        return ""
    said = process.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package}:${Architecture} ${Version}\\n"],
        timeout=30,
        error=ProvisionError,
    )
    return "\n".join(sorted(line for line in said.splitlines() if line.startswith("ii")))
