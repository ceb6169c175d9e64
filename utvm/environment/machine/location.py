# SPDX-License-Identifier: Apache-2.0
"""The virtual machine as a location for commands, with a USB of its own."""

import contextlib
import secrets
import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from utvm.environment.layers import CHECKOUT
from utvm.environment.machine import libvirt
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.settings import Plug, usb_filter
from utvm.environment.remote import RemoteCommand, remote_paths
from utvm.errors import VERDICTS, ConfigError, ProbeError, ProvisionError
from utvm.paths import ROOT
from utvm.probe.choice import hold_probe
from utvm.probe.virtual import UsbProbe, start_virtual
from utvm.provenance.location import location_variables

_HOME = PurePosixPath("/home/vagrant")
_MACHINE_TIMEOUT = 600.0  # Seconds that another command may use the machine: it may be creating it.
_PLUG_TIMEOUT = 120  # Seconds for the guest's kernel to see a probe; an emulated guest is slow.
# Wait until Linux has a device of a serial number.
_AWAIT_DEVICE = (
    f"for i in $(seq {_PLUG_TIMEOUT * 2}); do"
    ' grep -qxsF -- "$1" /sys/bus/usb/devices/*/serial && exit 0; sleep 0.5; done; exit 1'
)


class InMachine:
    """A virtual machine, started if needed: a :class:`utvm.environment.remote.RemoteLocation`."""

    has_usb = True
    chooses_board = False

    def __init__(self, say: Callable[[str], None], machine: Machine | None = None, box: str = "") -> None:
        self._say = say
        self._box = box
        self._machine = machine or Machine(say=say)

    def run(self, command: RemoteCommand) -> int:
        machine = self._machine
        machine.up(box=self._box, patience=_MACHINE_TIMEOUT)
        self._say("")
        own = _HOME / f"run-{secrets.token_hex(4)}"
        paths = remote_paths(command, own, CHECKOUT)
        try:
            for folder in set(command.paths) - set(command.output_folders):
                if ROOT not in folder.parents:
                    machine.guest.send(folder, paths[folder], command.output_folders)
            with self._plugged_in(command):
                folders = {str(ROOT): CHECKOUT} | {str(path): name for path, name in paths.items()}
                variables = (f"{name}={value}" for name, value in location_variables("vm", folders).items())
                code = machine.run(["env", *variables, *command.argv(paths, CHECKOUT)])
        except BaseException:
            # If the machine no longer answers, the first error is the one to report.
            with contextlib.suppress(ProvisionError):
                self._fetch_outputs(command.output_folders, paths, own)
            raise
        try:
            self._fetch_outputs(command.output_folders, paths, own)
        except KeyboardInterrupt:
            # After a verdict was printed, the report must still be fetched.
            if code not in VERDICTS:
                raise
            self._fetch_outputs(command.output_folders, paths, own)
        return code

    def _fetch_outputs(self, output_folders: Sequence[Path], paths: dict[Path, str], own: PurePosixPath) -> None:
        for folder in output_folders:
            if self._machine.guest.run(["test", "-d", paths[folder]]) == 0:
                folder.mkdir(parents=True, exist_ok=True)
                self._machine.guest.fetch(f"{paths[folder]}/", folder)
        self._machine.guest.run(["rm", "-rf", str(own)])

    @contextlib.contextmanager
    def _plugged_in(self, command: RemoteCommand) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            serial = None
            if command.usb:
                stack.enter_context(self._virtual(command))
                serial = command.selection.serial
            elif command.probe:
                # A probe that is not here may be in the machine: one that a program connected to its plugs.
                wait = command.selection.wait
                probe = stack.enter_context(hold_probe(command.board, command.probe, wait, self._say))
                stack.enter_context(libvirt.attached_device(self._machine.records.name, usb_filter(probe)))
                serial = probe.serial
            if serial is not None and self._machine.guest.run(["sh", "-c", _AWAIT_DEVICE, "sh", serial]) != 0:
                raise ProbeError(
                    f"the machine does not see the probe {serial} that was plugged into it",
                    f"list its devices: ./inv vm.run {shlex.quote('cat /sys/bus/usb/devices/*/serial')}",
                )
            yield

    @contextlib.contextmanager
    def _virtual(self, command: RemoteCommand) -> Iterator[None]:
        """Run the virtual board in a process of this computer, with its probe in a plug of the machine."""
        assert command.usb
        plug = next((plug for plug in self._machine.plugs if _is_free(plug)), None)
        if plug is None:
            raise ConfigError("all USB plugs of the machine are in use", "list them: ./inv vm.status")
        with tempfile.TemporaryDirectory(prefix="utvm-plug-") as logs:
            usb = UsbProbe(command.usb, str(plug.port), libvirt.qemu_user())
            with start_virtual(command.board, Path(logs), serial=command.selection.serial, usb=usb):
                yield


def _is_free(plug: Plug) -> bool:
    try:
        socket.create_server((plug.host, plug.port)).close()
    except OSError:
        return False
    return True
