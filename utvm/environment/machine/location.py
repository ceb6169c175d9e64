# SPDX-License-Identifier: Apache-2.0
"""A place: the virtual machine of the frozen environment, with a USB of its own."""

import contextlib
import secrets
import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from utvm.boards import Board
from utvm.environment.layers import CHECKOUT
from utvm.environment.location import location_variables
from utvm.environment.machine import libvirt
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.settings import Plug, usb_filter
from utvm.environment.remote import BoardRequest, RemoteCommand, remote_paths
from utvm.errors import VERDICTS, ConfigError, ProbeError, ProvisionError
from utvm.paths import ROOT
from utvm.probe.choice import taken
from utvm.probe.virtual import UsbProbe, start_virtual

_HOME = PurePosixPath("/home/vagrant")
_PATIENCE = 600.0  # Seconds that another command may be at work on the machine: it may just be making it.
_PLUGGING_IN = 120  # Seconds until the guest's kernel must have seen a probe: emulated, it takes its time.
# Whether Linux has a device of that serial number; the loop ends it all the same.
_SEEN = (
    f"for i in $(seq {_PLUGGING_IN * 2}); do"
    ' grep -qxsF -- "$1" /sys/bus/usb/devices/*/serial && exit 0; sleep 0.5; done; exit 1'
)


class InMachine:
    """A virtual machine, started if need be: a :class:`utvm.environment.remote.Place`.

    Args:
        say: is told what is being done, and nothing when that is done and the command begins.
        machine: by default this checkout's.
        box: path or URL of the catalogue of the box that it is made of; by default the checkout's.
    """

    has_usb = True
    chooses_board = False

    def __init__(self, say: Callable[[str], None], machine: Machine | None = None, box: str = "") -> None:
        self._say = say
        self._box = box
        self._machine = machine or Machine(say=say)

    def run(self, command: RemoteCommand) -> int:
        """Run a command in it; what it writes is fetched, also when it was interrupted."""
        machine = self._machine
        machine.up(box=self._box, patience=_PATIENCE)
        self._say("")
        own = _HOME / f"run-{secrets.token_hex(4)}"
        places = remote_paths(command, own, CHECKOUT)
        try:
            for folder in set(command.paths) - set(command.output_folders):
                if ROOT not in folder.parents:
                    machine.guest.send(folder, places[folder], command.output_folders)
            with self._plugged_in(command.request):
                told = location_variables(
                    "vm", {str(ROOT): CHECKOUT} | {str(path): name for path, name in places.items()}
                )
                variables = [f"{name}={value}" for name, value in told.items()]
                code = machine.run(["env", *variables, *command.argv(places, CHECKOUT)])
        except BaseException:
            # As far as the machine still answers: what went wrong is already known.
            with contextlib.suppress(ProvisionError):
                self._bring_home(command.output_folders, places, own)
            raise
        try:
            self._bring_home(command.output_folders, places, own)
        except KeyboardInterrupt:
            # Too late for a verdict that was said already: the report is to say the same.
            if code not in VERDICTS:
                raise
            self._bring_home(command.output_folders, places, own)
        return code

    def _bring_home(self, output_folders: Sequence[Path], places: dict[Path, str], own: PurePosixPath) -> None:
        """Fetch what was written."""
        for folder in output_folders:
            if self._machine.guest.run(["test", "-d", places[folder]]) == 0:
                folder.mkdir(parents=True, exist_ok=True)
                self._machine.guest.fetch(f"{places[folder]}/", folder)
        self._machine.guest.run(["rm", "-rf", str(own)])

    @contextlib.contextmanager
    def _plugged_in(self, wanted: BoardRequest) -> Iterator[None]:
        """Have the probe that is meant on the machine's USB."""
        with contextlib.ExitStack() as stack:
            serials = []
            if wanted.usb:
                stack.enter_context(self._virtual(wanted.board, wanted))
                serials = [wanted.serial]
            elif wanted.probe:
                # One that is not here may be in the machine all the same: whoever listens at its plugs.
                probe = stack.enter_context(taken(wanted.board, wanted.probe, wanted.wait, self._say))
                stack.enter_context(libvirt.lent(self._machine.records.name, usb_filter(probe)))
                serials = [probe.serial]
            for serial in serials:
                if self._machine.guest.run(["sh", "-c", _SEEN, "sh", serial]) != 0:
                    raise ProbeError(
                        f"the machine does not see the probe {serial} that was plugged into it",
                        f"./inv vm.run {shlex.quote('cat /sys/bus/usb/devices/*/serial')} shows what it sees",
                    )
            yield

    @contextlib.contextmanager
    def _virtual(self, board: Board, wanted: BoardRequest) -> Iterator[None]:
        """Keep the virtual board in a process of this computer, its probe in a plug of the machine."""
        assert wanted.usb
        plug = next((each for each in self._machine.plugs if _is_free(each)), None)
        if plug is None:
            raise ConfigError("something is in every USB plug of the machine", "./inv vm.status names them")
        with tempfile.TemporaryDirectory(prefix="utvm-plug-") as logs:
            usb = UsbProbe(wanted.usb, str(plug.port), libvirt.qemu_user())
            with start_virtual(board, Path(logs), serial=wanted.serial, usb=usb):
                yield


def _is_free(plug: Plug) -> bool:
    try:
        socket.create_server((plug.host, plug.port)).close()
    except OSError:
        return False
    return True
