# SPDX-License-Identifier: Apache-2.0
"""A probe on USB in a container, in a real engine.

This machine's USB is not used: device nodes with USB's numbers, in a folder, replace /dev/bus/usb. Where the kernel has
no such device, opening one that is allowed ends at the driver ("No such device or address"); one that is forbidden does
not get there ("Operation not permitted").
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.cli.running import inv
from tests.probe.fake_usb import plug_in, use
from utvm import boards
from utvm.environment import container
from utvm.environment.container import LABEL, ContainerAccess, usb_access
from utvm.environment.engine import connect
from utvm.environment.machine.settings import UsbFilter, usb_filter
from utvm.errors import ConfigError, ProbeError, ProvisionError
from utvm.probe import usb as usb_module
from utvm.probe.choice import probes_for
from utvm.probe.usb import sysfs

_USB = 189
_ACM = 166
_AT_DRIVER = "No such device or address"
_FORBIDDEN = "Operation not permitted"
_DENIED = "Permission denied"


@dataclass(frozen=True)
class _Port:
    """A serial port, as in pyserial's list."""

    device: str
    serial_number: str
    location: str


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two probes on a fake bus, LEFT with address 5 and RIGHT with 6; their nodes are files."""
    use(tmp_path, monkeypatch.setattr)
    plug_in(tmp_path, "1", "LEFT", address=5)
    plug_in(tmp_path, "2", "RIGHT", address=6)
    nodes = tmp_path / "nodes"
    monkeypatch.setattr(container, "NODES", nodes)
    monkeypatch.setattr(usb_module.list_ports, "comports", lambda: [])
    return nodes


def _node(path: Path, major: int, minor: int, mode: int = 0o660, owner: tuple[int, int] = (-1, -1)) -> Path:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    path.chmod(mode)  # past the umask
    os.chown(path, *owner)
    return path


def test_serial_chooses_between_equal_probes(bus: Path) -> None:
    board = boards.load("stm32f746")
    left = UsbFilter("0x0483", "0x374b", "LEFT", 1, 5)
    right = UsbFilter("0x0483", "0x374b", "RIGHT", 1, 6)
    assert [usb_filter(probe) for probe in probes_for(board, "")] == [left, right]
    assert [usb_filter(probe) for probe in probes_for(board, "RIGHT")] == [right]
    assert [usb_filter(probe) for probe in probes_for(None, "RIGHT")] == [right]


def _access(board: str, serial: str) -> ContainerAccess:
    return usb_access(probes_for(boards.load(board) if board else None, serial))


def test_container_gets_only_the_probes_serial_port(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [_Port("/dev/ttyACM0", "LEFT", "1-1:1.2"), _Port("/dev/ttyACM1", "RIGHT", "1-2:1.2")]
    monkeypatch.setattr(usb_module.list_ports, "comports", lambda: ports)
    assert _access("", "RIGHT").devices == ("/dev/ttyACM1",)
    assert _access("stm32f746", "").devices == ("/dev/ttyACM0", "/dev/ttyACM1")


def test_container_gets_only_groups_of_the_user(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = bus / "001" / "005"
    monkeypatch.setattr(os, "getgroups", lambda: [node.stat().st_gid, 4242])
    assert _access("", "LEFT").groups == (node.stat().st_gid,)
    monkeypatch.setattr(os, "getgroups", lambda: [4242])
    assert _access("", "LEFT").groups == ()


def test_missing_probe_is_named(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeError, match="there is no probe ABSENT: none is plugged in"):
        _access("", "ABSENT")
    with pytest.raises(ProbeError, match="there is no probe for pynq-z1"):
        _access("pynq-z1", "")
    with pytest.raises(ConfigError, match="mps2-an500 is emulated: it has no probe"):
        _access("mps2-an500", "")
    monkeypatch.setattr(sysfs, "NODES", bus / "absent")
    with pytest.raises(ProbeError, match="there is no probe LEFT: this machine has no USB"):
        _access("", "LEFT")


def test_probe_without_permission_is_named(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may open everything.
    monkeypatch.setattr(os, "access", lambda path, mode: path == bus / "001" / "006")
    with pytest.raises(ProbeError, match="the st-link LEFT at USB 1-1 cannot be used") as caught:
        _access("", "LEFT")
    assert "udev" in caught.value.hint
    _access("", "RIGHT")


class InContainer:
    """Runs shell commands in a container, and returns their output and errors."""

    def __init__(self, client: docker.DockerClient, image: str, capfd: pytest.CaptureFixture[str]) -> None:
        self._client = client
        self._image = image
        self._capfd = capfd

    def __call__(self, command: str, extra: ContainerAccess) -> str:
        container.run(self._client, self._image, ["sh", "-c", command], extra)
        return "".join(self._capfd.readouterr())


@pytest.fixture
def inside(
    engine: str, build_output: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[InContainer]:
    monkeypatch.setenv("DOCKER_HOST", engine)
    with connect() as client:
        yield InContainer(client, build_output["tags"][0], capfd)
        assert client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True) == []


@pytest.mark.slow
def test_only_the_probe_can_be_opened(inside: InContainer, bus: Path) -> None:
    _node(bus / "001" / "005", _USB, 4)
    _node(bus / "mem", 1, 1)
    _node(bus / "kmsg", 1, 11)
    _node(bus / "acm", _ACM, 0)
    extra = _access("", "LEFT")
    assert _AT_DRIVER in inside("cat /dev/bus/usb/001/005", extra)
    assert _AT_DRIVER in inside("exec 3<>/dev/bus/usb/001/005", extra)
    for other in ("mem", "kmsg", "acm"):
        assert _FORBIDDEN in inside(f"cat /dev/bus/usb/{other}", extra), other
    without = ContainerAccess(folders=extra.folders)
    assert _FORBIDDEN in inside("cat /dev/bus/usb/001/005", without)


@pytest.mark.slow
def test_probe_may_be_plugged_in_again(inside: InContainer, bus: Path) -> None:
    first, second = bus / "001" / "005", bus / "001" / "007"
    _node(first, _USB, 4)
    wait = "until test -e /dev/bus/usb/001/007; do sleep 0.05; done"

    def replug() -> None:
        deadline = time.monotonic() + 120
        while not (bus / "up").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        first.unlink()
        _node(second, _USB, 6)

    outside = threading.Thread(target=replug)
    outside.start()
    command = f"touch /dev/bus/usb/up; {wait}; ls /dev/bus/usb/001; cat /dev/bus/usb/001/007"
    output = inside(command, _access("", "LEFT"))
    outside.join()
    assert output.split("\n")[:2] == ["006", "007"]
    assert _AT_DRIVER in output


@pytest.mark.slow
def test_group_of_a_node_gives_access(inside: InContainer, bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with udev's rules: the node belongs to another user, and its group has access."""
    _node(bus / "001" / "005", _USB, 4, mode=0o060, owner=(12345, 4242))
    monkeypatch.setattr(os, "getgroups", lambda: [0, 4242])
    assert _AT_DRIVER in inside("cat /dev/bus/usb/001/005", _access("", "LEFT"))
    monkeypatch.setattr(os, "getgroups", lambda: [0])
    assert _DENIED in inside("cat /dev/bus/usb/001/005", _access("", "LEFT"))


@pytest.mark.slow
def test_only_the_serial_port_of_the_probe_can_be_opened(
    inside: InContainer, bus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = _node(tmp_path / "ttyACM0", _ACM, 0)
    _node(bus / "ttyACM1", _ACM, 1)
    monkeypatch.setattr(usb_module.list_ports, "comports", lambda: [_Port(str(port), "LEFT", "1-1:1.2")])
    extra = _access("", "LEFT")
    assert _AT_DRIVER in inside(f"cat {port}", extra)
    assert _FORBIDDEN in inside("cat /dev/bus/usb/ttyACM1", extra)


@pytest.mark.slow
def test_container_with_a_probe_is_not_privileged(inside: InContainer, bus: Path) -> None:
    _node(bus / "001" / "005", _USB, 4)
    output = inside("grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs' /proc/self/status", _access("", "LEFT"))
    values = dict(line.split(":\t") for line in output.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert list(values.values()) == ["0" * 16] * 4


@pytest.mark.slow
def test_container_sees_the_lock_of_a_probe(inside: InContainer, bus: Path) -> None:
    name = f"utvm-usb-test-{os.getpid()}.lock"
    outside = Path("/run/lock") / name
    try:
        with outside.open("w"):
            command = f"flock --nonblock /run/lock/{name} echo free"
            assert inside(command, _access("", "LEFT")) == "free\n"
            with outside.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                assert inside(command, _access("", "LEFT")) == ""
    finally:
        outside.unlink()


@pytest.mark.slow
def test_node_gone_before_the_start_leaves_no_container(
    engine: str, inside: InContainer, bus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ProvisionError, match="ttyACM9"), connect():
        inside("true", ContainerAccess(devices=[str(tmp_path / "ttyACM9")]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, code, message",
    [
        (("--probe=ANY",), 3, "there is no probe ANY: this machine has no USB"),
        (("--board=stm32f746",), 3, "this machine has no USB"),
        (("--board=mps2-an500",), 2, "mps2-an500 is emulated: it has no probe"),
        (("--board=host",), 2, "host is a process on this computer"),
    ],
)
def test_errors_about_probes_come_before_the_engine(options: tuple[str, ...], code: int, message: str) -> None:
    if code == 3 and Path("/dev/bus/usb").exists():
        pytest.skip("a machine without USB is missing")
    completed = inv("docker.run", "true", *options, DOCKER_HOST="unix:///no-such-engine")
    assert (completed.returncode, message in completed.stderr) == (code, True), completed.stderr
    assert "hint:" in completed.stderr
