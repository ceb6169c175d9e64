# SPDX-License-Identifier: Apache-2.0
"""udev rules that let users open debug probes, and their installation.

udev sets owner and permissions of a device when it is plugged in. Access to a probe goes to the user at the
machine, through systemd's login manager (``uaccess``), and to members of a group.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from utvm.base.process import run_tool
from utvm.errors import ConfigError, ProvisionError

# After OpenOCD's own rules, 60-openocd.rules; before 73-seat-late.rules, which applies uaccess.
NAME = "60-utvm.rules"
"""File name of the rules."""
FOLDER = Path("/etc/udev/rules.d")
"""udev's folder for the administrator's rules."""
GROUP = "plugdev"
"""Group that may open a probe without a local login. It exists in Debian, but not everywhere."""
# Control socket of a running udev.
_CONTROL = Path("/run/udev/control")
_MARK = "# Written by ./inv board.install-udev, which also replaces it."


def rules(probes: Mapping[tuple[int, int], Sequence[str]]) -> str:
    """Return the text of the rules for probes: board names by USB vendor and product."""
    lines = [
        f"# {', '.join(names)}\n"
        f'ATTRS{{idVendor}}=="{vendor:04x}", ATTRS{{idProduct}}=="{product:04x}", ENV{{UTVM_PROBE}}="1"\n'
        for (vendor, product), names in sorted(probes.items())
    ]
    return Path(__file__).with_name(NAME).read_text(encoding="utf-8").replace("@PROBES@\n", "".join(lines) + "\n")


def install_commands(source: Path, folder: Path = FOLDER) -> list[list[str]]:
    """Return the commands, for root, that install the rules from a file and make udev apply them."""
    apply = ["udevadm", "trigger", "--action=change"]
    return [
        ["install", "-m", "644", str(source), str(folder / NAME)],
        ["udevadm", "control", "--reload"],
        [*apply, *(f"--subsystem-match={subsystem}" for subsystem in ("usb", "tty", "hidraw"))],
    ]


def install(text: str, folder: Path = FOLDER, control: Path = _CONTROL) -> None:
    """Install the rules on this machine, with sudo if not root, and make udev apply them."""
    if not control.exists():
        raise ProvisionError(
            f"udev does not run here ({control} is missing)",
            "udev rules belong on the machine that probes are plugged into, not in a container on it: run this "
            "command there, or write the file for it with --output FOLDER",
        )
    path = folder / NAME
    # A link to /dev/null is how an administrator disables rules.
    if path.exists() and not installed_rules(folder):
        raise ConfigError(f"{path}: was not written by utvm, and is kept", "move it away, then start again")
    with tempfile.TemporaryDirectory(prefix="utvm-udev-") as temporary:
        source = Path(temporary) / NAME
        source.write_text(text, encoding="utf-8")
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        if as_root and shutil.which("sudo") is None:
            raise ProvisionError("installing udev rules needs root, and there is no sudo", _by_hand(folder))
        if not folder.is_dir():
            run_tool([*as_root, "install", "-d", folder], error=ProvisionError, hint=_by_hand(folder))
        for words in install_commands(source, folder):
            run_tool([*as_root, *words], error=ProvisionError, hint=_by_hand(folder))


def installed_rules(folder: Path = FOLDER) -> str:
    """Return the text of the installed rules; empty if none of this project are installed."""
    try:
        text = (folder / NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text if text.startswith(_MARK) else ""


def _by_hand(folder: Path) -> str:
    commands = [shlex.join(words) for words in install_commands(Path(NAME), folder)]
    return f"./inv board.install-udev --output . writes {NAME}; then, as root: {' && '.join(commands)}"
