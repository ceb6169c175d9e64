"""What can run a guest here: KVM where it works, software emulation elsewhere.

That ``/dev/kvm`` exists says little: it can refuse a CPU model, hang, or be slower than emulation, as it is within
some virtual machines. So a guest of one boot sector is run with each CPU model, after an emulated one: it does
what a kernel does first, and says that it got through by ending QEMU with an exit code of its own.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from utvm.environment.machine.settings import Acceleration
from utvm.errors import ProvisionError
from utvm.process import die_with_parent

QEMU = "qemu-system-x86_64"
_KVM = Path("/dev/kvm")
# boot_probe.S, assembled.
_CODE = bytes.fromhex(
    "fa31c08ed88ec08ed0bc007cbf001089fbb90018fcf3abc70600100320c70600200330c706003083000f0116987c0f20e00c"
    "200f22e0660fb7c30f22d866b9800000c00f32660d000100000f300f20c0660d010000800f22c0ea5e7c0800bd0000000448"
    "ff042500400000ffcd75f4bd0004000031c00fa2ffcd75f8b02ae6f4f4ebfd0f1f440000000000000000000000000000009a"
    "20000f00887c"
)
BOOT_SECTOR = _CODE.ljust(510, b"\0") + b"\x55\xaa"
_GOT_THROUGH = 0x2A << 1 | 1  # QEMU's exit code for what the sector writes to isa-debug-exit
_PATIENCE = 2.0  # seconds that KVM may take longer than emulation: it takes less where it works
_LONGEST = 60.0  # seconds for the emulated guest: a very busy computer

_EMULATED = ("qemu", "maximum")
# By the words of QEMU's -cpu. Some hosts advertise the capabilities' register and then refuse to have it written.
_MODELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("host", ()),
    ("host,arch-capabilities=off", (("arch-capabilities", "disable"),)),
)


def choose(device: Path = _KVM) -> Acceleration:
    """Return how a guest is best run on this computer.

    Raises:
        ProvisionError: QEMU is not installed, or cannot even emulate.
    """
    if shutil.which(QEMU) is None:
        raise ProvisionError(f"{QEMU} is not installed", "sudo apt-get install qemu-system-x86")
    with tempfile.TemporaryDirectory(prefix="utvm-probe-") as folder:
        sector = Path(folder) / "sector"
        sector.write_bytes(BOOT_SECTOR)
        begin = time.monotonic()
        if problem := _boot(sector, "tcg", "max", _LONGEST):
            raise ProvisionError(f"{QEMU} cannot run a guest of one sector: {problem}", "is QEMU installed whole?")
        limit = time.monotonic() - begin + _PATIENCE
        if not device.exists():
            return Acceleration(*_EMULATED, why=f"there is no {device}")
        if not os.access(device, os.R_OK | os.W_OK):
            return Acceleration(*_EMULATED, why=f"you may not use {device}: sudo usermod -aG kvm $USER")
        problems = []
        for model, features in _MODELS:
            problem = _boot(sector, "kvm", model, limit)
            if not problem:
                return Acceleration("kvm", "host-passthrough", features, "KVM works")
            problems.append(f"with -cpu {model} {problem}")
        return Acceleration(*_EMULATED, why=f"{device} does not serve: {'; '.join(problems)}")


def _boot(sector: Path, accelerator: str, model: str, limit: float) -> str:
    """Run the sector; return what went wrong, or nothing."""
    command: list[str | Path] = [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-m", "32"),
        *("-accel", accelerator, "-cpu", model, "-drive", f"file={sector},format=raw,if=ide,snapshot=on"),
        *("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        return f"a guest of one sector was not through in {limit:.1f} s"
    if done.returncode == _GOT_THROUGH:
        return ""
    said = done.stderr.strip().splitlines()
    return f"QEMU ends with code {done.returncode}" + (f": {said[0]}" if said else "")
