# SPDX-License-Identifier: Apache-2.0
"""The machine's root file system: the locked packages, and what makes of them a system that starts by itself."""

from utvm.environment.locked import Locked
from utvm.environment.rootfs import Shape
from utvm.provenance.lock import MACHINE

_ROOT = f"{MACHINE}root/"  # files of the machine, by their names
_CONFIGURE = f"{MACHINE}configure.sh"  # what is done when all packages are there
# The public half of the pair that every Vagrant has (its documentation, "Creating a Base Box").
_KEY = f"{MACHINE}vagrant.pub"

# Which drivers are in the initial RAM disk must not follow from the machine that makes the box.
_BEFORE = """
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf '%s\\n' $UTVM_DRIVERS > "$1/etc/initramfs-tools/modules"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/utvm"
"""


def system_shape(locked: Locked) -> Shape:
    """Return how the locked packages become the machine's root file system."""
    drivers = locked.recipe.machine.early_drivers
    return Shape(
        name="machine",
        # The kernel makes the nodes; mmdebstrap's are those of the computer at hand.
        leave_out=("dev/",),
        before=_BEFORE,
        files={name.removeprefix(_ROOT): text for name, text in locked.files.items() if name.startswith(_ROOT)},
        after=locked.files[_CONFIGURE],
        variables={"UTVM_DRIVERS": " ".join(drivers), "UTVM_VAGRANT_KEY": locked.files[_KEY].strip()},
    )
