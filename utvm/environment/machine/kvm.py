# SPDX-License-Identifier: Apache-2.0
"""What can run a guest here: KVM where it works, software emulation elsewhere.

That ``/dev/kvm`` exists says little: it can refuse a CPU model, hang, or be slower than emulation, as it is within
some virtual machines; and what a boot sector gets through may stop a kernel. So the box's own kernel is started
with each CPU model, without a disk: where KVM works, it complains about that within seconds.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from utvm.base.process.parent_death import die_with_parent
from utvm.environment.machine.settings import Acceleration
from utvm.errors import ProvisionError

QEMU = "qemu-system-x86_64"
DEVICE = Path("/dev/kvm")
_GOT_THROUGH = "Unable to mount root fs"
_PATIENCE = 10.0  # seconds; where KVM works it takes two
_EMULATED = ("qemu", "maximum")
# In the words of QEMU's -cpu. Some hosts advertise a register of the CPU and refuse to write it.
_MODELS = ("host", "host,arch-capabilities=off")


def choose(kernel: Path, device: Path = DEVICE) -> Acceleration:
    """Return how a guest is best run on this computer.

    Args:
        kernel: Linux, as QEMU starts it.
    """
    if shutil.which(QEMU) is None:
        raise ProvisionError(f"{QEMU} is not installed", "sudo apt-get install qemu-system-x86")
    if not device.exists():
        return Acceleration(*_EMULATED, why=f"there is no {device}")
    if not os.access(device, os.R_OK | os.W_OK):
        return Acceleration(*_EMULATED, why=f"you may not use {device}: sudo usermod -aG kvm $USER")
    problems = []
    for model in _MODELS:
        problem = _problem(kernel, model)
        if not problem:
            # libvirt's word for QEMU's "host". vagrant-libvirt takes no features beside it.
            own = "" if model == "host" else model
            return Acceleration("kvm", "host-passthrough", own, why=f"a kernel starts with -cpu {model}")
        problems.append(f"with -cpu {model} {problem}")
    return Acceleration(*_EMULATED, why=f"{device} does not serve: {'; '.join(problems)}")


def _problem(kernel: Path, model: str) -> str:
    """Start the kernel; return what went wrong, or nothing."""
    command: list[str | Path] = [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-m", "256"),
        *("-accel", "kvm", "-cpu", model, "-no-reboot", "-serial", "stdio", "-kernel", kernel),
        # panic=-1: the kernel restarts the machine at once when it panics, and QEMU ends.
        *("-append", "console=ttyS0 panic=-1"),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent(),  # noqa: PLW1509  two system calls, no locks
    ) as guest:
        try:
            said = guest.communicate(timeout=_PATIENCE)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            return f"the kernel did not get through in {_PATIENCE:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                guest.kill()
    if _GOT_THROUGH in said:
        return ""
    own = [line for line in said.splitlines() if line.startswith("qemu")]
    return f"QEMU ends with code {guest.returncode}" + (f": {own[0]}" if own else "")
