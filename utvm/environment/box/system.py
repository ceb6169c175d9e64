"""The machine's root file system: the locked packages and what is in ``vm``, as a system that starts by itself."""

from pathlib import Path

from utvm.environment.recipe import MachinePart
from utvm.environment.rootfs import Shape
from utvm.errors import ConfigError
from utvm.toolchain import ROOT

GUEST_FILES = ROOT / "vm"
"""``root`` holds files of the machine by their names, ``configure.sh`` what is done when all packages are there,
``vagrant.pub`` the public half of the pair that every Vagrant has (its documentation, "Creating a Base Box")."""

# Which drivers are in the initial RAM disk must not follow from the machine that makes the box.
_BEFORE = """
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf '%s\\n' $UTVM_DRIVERS > "$1/etc/initramfs-tools/modules"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/utvm"
"""


def system_shape(machine: MachinePart, files: Path = GUEST_FILES) -> Shape:
    """Return how the locked packages become the machine's root file system.

    Raises:
        ConfigError: a file of ``vm/`` cannot be read.
    """
    root = files / "root"
    try:
        contents = {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }
        configure, key = ((files / name).read_text(encoding="utf-8") for name in ("configure.sh", "vagrant.pub"))
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error
    return Shape(
        name="machine",
        # The kernel makes the nodes; mmdebstrap's are those of the computer at hand.
        leave_out=("dev/",),
        before=_BEFORE,
        files=contents,
        after=configure,
        variables={"UTVM_DRIVERS": " ".join(machine.early_drivers), "UTVM_VAGRANT_KEY": key.strip()},
    )
