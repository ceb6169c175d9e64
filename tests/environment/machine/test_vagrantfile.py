# SPDX-License-Identifier: Apache-2.0
"""What ``vm/Vagrantfile`` asks of each provider, and that Vagrant accepts it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from utvm.environment.machine.settings import Acceleration, Plug, Settings, UsbFilter, memory_for
from utvm.paths import ROOT

_FILE = ROOT / "vm" / "Vagrantfile"
_SETTINGS = Settings(
    name="utvm-0123456789",
    description="a machine of the tests",
    box="utvm/0123456789ab",
    box_version="2026.01.05",
    acceleration=Acceleration("kvm", "host-passthrough", "host,arch-capabilities=off"),
    network_address="192.168.187.0/24",
    plugs=(Plug(4010), Plug(4011, "192.0.2.7")),
    usb_filters=(UsbFilter("0x0483", "0x374b", "066BFF303430", 1, 4), UsbFilter("0x0483", "0x3748")),
    cpus=2,
    memory_mb=2048,
)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(_SETTINGS.for_vagrant())
    return path


def _asked(settings: Path, provider: str) -> dict[str, Any]:
    if shutil.which("ruby") is None:
        pytest.skip("this machine lacks ruby: apt-get install vagrant")
    recorder = Path(__file__).with_name("recorder.rb")
    done = subprocess.run(
        ["ruby", recorder, _FILE, provider],
        env={**os.environ, "UTVM_MACHINE": str(settings)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_libvirt_gets_an_isolated_network_and_usb_plugs(settings: Path) -> None:
    asked = _asked(settings, "libvirt")
    said = {words[0]: words[1:] for words in asked["provider"]}
    assert said["management_network_mode="] == ["none"]
    assert said["driver="] == ["kvm"]
    arguments = [words[1]["value"] for words in asked["provider"] if words[0] == "qemuargs"]
    assert arguments[:2] == ["-cpu", "host,arch-capabilities=off"]
    assert arguments[3] == "socket,id=plug0,host=127.0.0.1,port=4010,reconnect=1"
    assert json.loads(arguments[5]) == {"driver": "usb-redir", "id": "probe0", "chardev": "plug0", "bus": "usb.0"}
    assert arguments[7] == "socket,id=plug1,host=192.0.2.7,port=4011,reconnect=1"
    devices = [words[1] for words in asked["provider"] if words[0] == "usb"]
    if Path("/sys/bus/usb/devices").is_dir():
        assert [device["product"] for device in devices] == ["0x374b", "0x3748"]
    else:
        assert devices == []


def test_virtualbox_tells_probes_apart_by_serial(settings: Path) -> None:
    calls = [words[1] for words in _asked(settings, "virtualbox")["provider"] if words[0] == "customize"]
    first = next(words for words in calls if words[0] == "usbfilter")
    numbers = dict(zip(first[5::2], first[6::2], strict=True))
    assert numbers["--vendorid"] == "0483"
    assert numbers["--productid"] == "374b"
    assert numbers["--serialnumber"] == "066BFF303430"


def test_vmware_takes_probes_as_they_are_plugged_in(settings: Path) -> None:
    ((_, asked),) = _asked(settings, "vmware_desktop")["provider"]
    assert asked["usb_xhci.present"] == "TRUE"
    assert asked["usb.autoConnect.device0"] == "vid:0483 pid:374b autoclean:1"
    assert asked["memsize"] == "2048"


def test_machines_get_their_own_key_and_no_box_is_looked_up(settings: Path) -> None:
    said = [tuple(words) for words in _asked(settings, "libvirt")["common"]]
    assert ("box_check_update=", False) in said
    assert ("insert_key=", True) in said


def test_started_by_hand_it_says_what_starts_it() -> None:
    done = subprocess.run(
        ["ruby", _FILE], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "./inv vm.up starts the machine" in done.stderr


def test_a_machine_takes_half_of_a_small_computer_s_memory() -> None:
    assert memory_for(3 << 30) == 1536
    assert memory_for(64 << 30) == 4096


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["libvirt", "virtualbox"])
def test_vagrant_finds_nothing_wrong(settings: Path, tmp_path: Path, provider: str) -> None:
    """VirtualBox itself is a fake: a program that says its version. VMware's plugin is not in Debian."""
    if shutil.which("vagrant") is None:
        pytest.skip("this machine lacks vagrant: apt-get install vagrant vagrant-libvirt")
    fake = tmp_path / "VBoxManage"
    fake.write_text("#!/bin/sh\necho 7.0.20r163906\n")
    fake.chmod(0o755)
    done = subprocess.run(
        ["vagrant", "validate", "--no-tty"],
        cwd=_FILE.parent,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "VAGRANT_HOME": str(tmp_path / "home"),
            "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot"),
            "VAGRANT_DEFAULT_PROVIDER": provider,
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "UTVM_MACHINE": str(settings),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
