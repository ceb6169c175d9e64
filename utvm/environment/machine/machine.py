# SPDX-License-Identifier: Apache-2.0
"""The virtual machine of a checkout: its state, commands that change it, and commands that run in it.

A machine is complete when it has started, has the checkout, and has the snapshot ``ready``. An incomplete one is
recreated. A complete one is removed or reset only on request.
"""

import contextlib
import secrets
import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from utvm.base.process import free_port
from utvm.environment import builds, image, remote
from utvm.environment.locked import Locked, load_lock_files
from utvm.environment.machine import guest, libvirt
from utvm.environment.machine.libvirt import Domain, State
from utvm.environment.machine.settings import Plug, Records, Settings, choose_acceleration, records_of, usb_filter
from utvm.environment.machine.vagrant import Box, Vagrant, ensure_box, locked_box
from utvm.errors import VERDICTS, ConfigError, ProbeError, ProvisionError
from utvm.paths import ROOT
from utvm.probe import choice, virtual
from utvm.provenance.location import location_variables

READY = "ready"
"""First snapshot of a machine."""
Say = Callable[[str], None]
_PLUGS = 2
_LOCK_TIMEOUT = 900.0  # Seconds for another checkout to create or remove its machine.


@dataclass(frozen=True)
class MachineStatus:
    """State of the machine, snapshots, daemons, leftovers; ``problem``: why libvirt does not reply."""

    records: Records
    domain: Domain | None
    facts: dict[str, str] | None
    snapshots: dict[str, str]
    daemons: dict[str, int]
    left_over: list[str]
    problem: str


class Machine:
    def __init__(self, records: Records | None = None, say: Say | None = None) -> None:
        self.records = records or records_of()
        self.guest = guest.Guest(self.records)
        self._say = say or (lambda _: None)

    def up(self, box: str = "", fresh: bool = False, patience: float = 0.0) -> None:
        """Start the machine, set its clock, check ssh, and copy the checkout.

        Args:
            fresh: restore the snapshot ``ready``; later writes to the disk are lost.
        """
        with self._alone(patience):
            locked = load_lock_files()
            current_box = locked_box(locked)
            machine = self._ours()
            if self.records.facts is None:
                self._create(locked, current_box, box)
                return
            self._check_box(current_box)
            if machine is None:
                raise ProvisionError(
                    f"the machine {self.records.name} was removed, but not by vm.destroy",
                    "./inv vm.destroy removes its remains; then ./inv vm.up",
                )
            libvirt.wait_for_jobs(machine.name)
            libvirt.start_network()
            self._start(libvirt.domain(machine.name) or machine, fresh)
            self._say("waiting for ssh")
            self.guest.prove()
            self._say("copying the checkout")
            self.guest.sync()

    def run(self, words: Sequence[str]) -> int:
        self._require_running()
        self.records.mark_used()
        return self.guest.run(words)

    def shell(self) -> int:
        self._require_running()
        self.records.mark_used()
        return self.guest.shell()

    @property
    def plugs(self) -> tuple[Plug, ...]:
        facts = self._require_complete()
        ports = (part for part in facts["plugs"].split(","))
        return tuple(Plug(int(port), host) for host, _, port in (part.rpartition(":") for part in ports))

    def halt(self) -> None:
        with self._alone():
            machine = self._require_own()
            if machine.state is State.SUSPENDED:
                raise ProvisionError(
                    "the machine is suspended: it would have to be resumed to be shut down", "./inv vm.up, then vm.halt"
                )
            if machine.state in (State.RUNNING, State.PAUSED):
                if machine.state is State.PAUSED:
                    libvirt.virsh("resume", machine.name)
                Vagrant(self.records).halt()
            elif machine.state is State.BROKEN:
                libvirt.cut_power(machine.name)

    def suspend(self) -> None:
        with self._alone():
            if self._require_own().state is not State.RUNNING:
                raise ProvisionError("the machine does not run", "./inv vm.status shows its state")
            Vagrant(self.records).suspend()

    def snapshots(self) -> dict[str, str]:
        """Return snapshots and their states, by name. Starts nothing, not even libvirt."""
        self._require_complete()
        if problem := libvirt.problem():
            raise ProvisionError(problem.message, "./inv vm.up starts it")
        return libvirt.snapshots(self._require_own().name)

    def save(self, name: str) -> None:
        with self._alone():
            machine = self._require_own()
            self._check_name(name)
            if name in libvirt.snapshots(machine.name):
                hint = f"./inv vm.snapshot --delete {shlex.quote(name)}"
                raise ConfigError(f"there is a snapshot {name} already", hint)
            if machine.state is State.SUSPENDED:
                raise ProvisionError("the machine is suspended", "resume it first: ./inv vm.up")
            Vagrant(self.records).snapshot_save(name)

    def restore(self, name: str) -> None:
        with self._alone():
            machine = self._require_snapshot(name)
            self._restore(machine, name)
            if libvirt.snapshots(machine.name)[name] == "running":
                self.guest.prove()

    def delete(self, name: str) -> None:
        with self._alone():
            self._require_snapshot(name)
            self._check_name(name)
            Vagrant(self.records).snapshot_delete(name)

    def destroy(self) -> list[str]:
        """Remove the machine in any state, and leftovers of our other machines; return their names."""
        with self._alone(), self._making():
            machine = libvirt.domain(self.records.name)
            if machine is not None:
                self._check_ours(machine)
            return self._remove() + self._sweep()

    def status(self) -> MachineStatus:
        """Return the state of the machine. Starts nothing, not even libvirt."""
        if problem := libvirt.problem():
            return MachineStatus(
                self.records, None, self.records.facts, {}, libvirt.running_daemons(), [], problem.message
            )
        machine = libvirt.domain(self.records.name)
        snapshots = libvirt.snapshots(machine.name) if machine else {}
        return MachineStatus(
            self.records, machine, self.records.facts, snapshots, libvirt.running_daemons(), self._left_over(), ""
        )

    def _create(self, locked: Locked, box: Box, where: str) -> None:
        with self._making():
            if self._remove_incomplete():
                self._say("an earlier start was interrupted: removing its remains")
            try:
                self._create_from_box(locked, box, where)
            except BaseException:
                self._remove_incomplete()
                raise

    def _remove_incomplete(self) -> bool:
        removed = self._remove()
        # An incomplete copy of a box looks complete, but no disk is based on it.
        self._remove_unused_boxes()
        return bool(removed)

    def _create_from_box(self, locked: Locked, box: Box, where: str) -> None:
        self.records.create()
        vagrant = Vagrant(self.records)
        self._say("looking for the box")
        if ensure_box(box, vagrant, where, lambda: builds.make_missing_box(locked, self._say)):
            self._say("the box is added to Vagrant")
        self._say("checking whether KVM works")
        settings = Settings(
            name=self.records.name,
            description=self.records.description,
            box=box.name,
            box_version=box.version,
            acceleration=choose_acceleration(box.kernel),
            network_address=libvirt.network_address(),
            plugs=tuple(Plug(free_port()) for _ in range(_PLUGS)),
        )
        self.records.settings.write_text(settings.for_vagrant(), encoding="utf-8")
        mode = settings.acceleration
        self._say(f"starting the machine ({'KVM' if mode.driver == 'kvm' else 'software emulation'}: {mode.why})")
        vagrant.up()
        self._say("waiting for ssh")
        self.guest.prove()
        self._say("copying the checkout")
        self.guest.sync()
        self._say("saving the snapshot that restores it as new")
        vagrant.snapshot_save(READY)
        self.guest.prove()
        self.records.mark_used(False)
        self.records.finish(
            {
                "box": box.name,
                "version": box.version,
                "runs": "KVM" if mode.driver == "kvm" else "software emulation",
                "why": mode.why,
                "plugs": ",".join(f"{plug.host}:{plug.port}" for plug in settings.plugs),
            }
        )

    def _start(self, machine: Domain, fresh: bool) -> None:
        """Start a complete machine. Only an unused one is reset automatically."""
        if machine.state is State.BROKEN:
            libvirt.cut_power(machine.name)
        if fresh or (machine.state in (State.OFF, State.BROKEN) and not self.records.is_used):
            self._restore(machine, READY)
        elif machine.state is State.PAUSED:
            libvirt.virsh("resume", machine.name)
        elif machine.state is State.SUSPENDED:
            self._say("resuming")
            libvirt.virsh("start", machine.name)  # Faster than Vagrant.
        elif machine.state is not State.RUNNING:
            self._say("starting after a shutdown; its disk is unchanged")
            Vagrant(self.records).up()

    def _restore(self, machine: Domain, name: str) -> None:
        self._say(f"restoring the snapshot {name}")
        libvirt.start_network()
        libvirt.restore(machine.name, name)
        if name == READY:
            self.records.mark_used(False)
        else:
            self.records.mark_used()

    def _remove(self) -> list[str]:
        removed = libvirt.remove_domain(self.records.name)
        self.records.remove()
        return removed

    def _sweep(self) -> list[str]:
        """Remove leftovers; the lock ensures that no machine is being created."""
        removed = []
        for name in _orphans():
            removed += libvirt.remove_domain(name)
        for name in libvirt.orphan_disks():
            libvirt.remove_volume(name)
            removed.append(f"disk {name}")
        return removed + self._remove_unused_boxes()

    def _remove_unused_boxes(self) -> list[str]:
        removed = []
        for name in libvirt.unused_boxes():
            libvirt.remove_volume(name)
            removed.append(f"libvirt's copy of the box {name}")
        if not libvirt.domains() and libvirt.remove_network():
            removed.append(f"network {libvirt.NETWORK}")
        return removed

    def _left_over(self) -> list[str]:
        left = [f"machine {name}: its records are gone" for name in _orphans()]
        left += [f"disk {name} without a machine" for name in libvirt.orphan_disks()]
        left += [f"libvirt's copy of the box {name}, which no machine uses" for name in libvirt.unused_boxes()]
        if not libvirt.domains() and libvirt.has_network():
            left.append(f"network {libvirt.NETWORK} without a machine")
        return left

    @contextlib.contextmanager
    def _alone(self, patience: float = 0.0) -> Iterator[None]:
        what, other = f"virtual machine {self.records.name}", "another command uses it"
        with self._lock(what, other, patience), libvirt.running_libvirt(self._say):
            yield

    def _making(self) -> contextlib.AbstractContextManager[None]:
        other = "another checkout's machine is being created or removed"
        return self._lock("making virtual machines", other, _LOCK_TIMEOUT)

    def _lock(self, what: str, other: str, patience: float) -> contextlib.AbstractContextManager[None]:
        return builds.hold_alone(what, f"{other}; wait for its end", patience, lambda _: self._say(f"waiting: {other}"))

    def _ours(self) -> Domain | None:
        machine = libvirt.domain(self.records.name)
        if machine is not None:
            self._check_ours(machine)
        return machine

    def _check_ours(self, machine: Domain) -> None:
        if machine.description != self.records.description:
            raise ProvisionError(
                f"libvirt has a machine {machine.name} already, and it is not this checkout's"
                + (f" ({machine.description})" if machine.description else ""),
                f"give it another name: virsh -c qemu:///system domrename {machine.name} NAME",
            )

    def _require_complete(self) -> dict[str, str]:
        facts = self.records.facts
        if facts is None:
            raise ProvisionError("this checkout has no machine", "./inv vm.up creates one")
        return facts

    def _require_own(self) -> Domain:
        self._require_complete()
        machine = self._ours()
        if machine is None:
            raise ProvisionError("this checkout's machine no longer exists", "./inv vm.destroy, then ./inv vm.up")
        libvirt.wait_for_jobs(machine.name)
        return libvirt.domain(machine.name) or machine

    def _require_running(self) -> None:
        self._require_complete()
        with libvirt.running_libvirt(self._say):
            if self._require_own().state is not State.RUNNING:
                raise ProvisionError("the machine does not run", "./inv vm.up starts it")

    def _require_snapshot(self, name: str) -> Domain:
        machine = self._require_own()
        existing = libvirt.snapshots(machine.name)
        if name not in existing:
            raise ConfigError(f"there is no snapshot {name!r}", f"there are: {', '.join(existing)}")
        return machine

    def _check_name(self, name: str) -> None:
        if name == READY:
            raise ConfigError(f"{READY} is the snapshot that vm.up creates and needs", "choose another name")

    def _check_box(self, box: Box) -> None:
        facts = self._require_complete()
        if (facts["box"], facts["version"]) != (box.name, box.version):
            raise ConfigError(
                f"the machine was created from {facts['box']} {facts['version']}, "
                f"the checkout's locks now require {box.name} {box.version}",
                "copy your files from it, then ./inv vm.destroy and ./inv vm.up",
            )


def _orphans() -> list[str]:
    return [machine.name for machine in libvirt.domains() if _records_are_gone(machine.description)]


def _records_are_gone(description: str) -> bool:
    ours, comma, folder = description.partition(", records ")
    if not (comma and ours.startswith("utvm: ")):
        return False
    try:
        return not Path(folder).exists()
    except PermissionError:
        # Another user's.
        return False


_HOME = PurePosixPath("/home/vagrant")
_MACHINE_TIMEOUT = 600.0  # Seconds that another command may use, or be creating, the machine.
_PLUG_TIMEOUT = 120  # Seconds for the guest's kernel to see a probe; an emulated guest is slow.
# Wait until Linux has a device with a serial number.
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

    def run(self, command: remote.RemoteCommand) -> int:
        machine = self._machine
        machine.up(box=self._box, patience=_MACHINE_TIMEOUT)
        self._say("")
        own = _HOME / f"run-{secrets.token_hex(4)}"
        paths = remote.remote_paths(command, own, image.CHECKOUT)
        try:
            for folder in set(command.paths) - set(command.output_folders):
                if ROOT not in folder.parents:
                    machine.guest.send(folder, paths[folder], command.output_folders)
            with self._plugged_in(command):
                folders = {str(ROOT): image.CHECKOUT} | {str(path): name for path, name in paths.items()}
                variables = (f"{name}={value}" for name, value in location_variables("vm", folders).items())
                code = machine.run(["env", *variables, *command.argv(paths, image.CHECKOUT)])
        except BaseException:
            # If the machine no longer replies, report the first error.
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
    def _plugged_in(self, command: remote.RemoteCommand) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            serial = None
            if command.usb:
                stack.enter_context(self._virtual(command))
                serial = command.selection.serial
            elif command.probe:
                # A probe not on this computer may be in the machine, connected to its plugs by a program.
                wait = command.selection.wait
                probe = stack.enter_context(choice.hold_probe(command.board, command.probe, wait, self._say))
                stack.enter_context(libvirt.attached_device(self._machine.records.name, usb_filter(probe)))
                serial = probe.serial_number
            if serial is not None and self._machine.guest.run(["sh", "-c", _AWAIT_DEVICE, "sh", serial]) != 0:
                raise ProbeError(
                    f"the machine does not see the probe {serial} that was plugged into it",
                    f"list its devices: ./inv vm.run {shlex.quote('cat /sys/bus/usb/devices/*/serial')}",
                )
            yield

    @contextlib.contextmanager
    def _virtual(self, command: remote.RemoteCommand) -> Iterator[None]:
        """Run the virtual board on this computer, with its probe in a USB plug of the machine."""
        assert command.usb
        plug = next((plug for plug in self._machine.plugs if _is_free(plug)), None)
        if plug is None:
            raise ConfigError("all USB plugs of the machine are in use", "list them: ./inv vm.status")
        with tempfile.TemporaryDirectory(prefix="utvm-plug-") as logs:
            usb = virtual.UsbProbe(command.usb, str(plug.port), libvirt.qemu_user())
            with virtual.start_virtual(command.board, Path(logs), serial=command.selection.serial, usb=usb):
                yield


def _is_free(plug: Plug) -> bool:
    try:
        socket.create_server((plug.host, plug.port)).close()
    except OSError:
        return False
    return True
