# SPDX-License-Identifier: Apache-2.0
"""The settings of ``vm/Vagrantfile`` for each provider, and their validation by Vagrant."""

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


def _recorded_calls(settings: Path, provider: str) -> dict[str, Any]:
    if shutil.which("ruby") is None:
        pytest.skip("this machine lacks ruby: apt-get install vagrant")
    recorder = Path(__file__).with_name("recorder.rb")
    completed = subprocess.run(
        ["ruby", recorder, _FILE, provider],
        env={**os.environ, "UTVM_MACHINE": str(settings)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(completed.stdout))


def test_libvirt_gets_an_isolated_network_and_usb_plugs(settings: Path) -> None:
    calls = _recorded_calls(settings, "libvirt")
    by_name = {words[0]: words[1:] for words in calls["provider"]}
    assert by_name["management_network_mode="] == ["none"]
    assert by_name["driver="] == ["kvm"]
    arguments = [words[1]["value"] for words in calls["provider"] if words[0] == "qemuargs"]
    assert arguments[:2] == ["-cpu", "host,arch-capabilities=off"]
    assert arguments[3] == "socket,id=plug0,host=127.0.0.1,port=4010,reconnect=1"
    assert json.loads(arguments[5]) == {"driver": "usb-redir", "id": "probe0", "chardev": "plug0", "bus": "usb.0"}
    assert arguments[7] == "socket,id=plug1,host=192.0.2.7,port=4011,reconnect=1"
    devices = [words[1] for words in calls["provider"] if words[0] == "usb"]
    if Path("/sys/bus/usb/devices").is_dir():
        assert [device["product"] for device in devices] == ["0x374b", "0x3748"]
    else:
        assert devices == []


def test_virtualbox_selects_probes_by_serial(settings: Path) -> None:
    calls = [words[1] for words in _recorded_calls(settings, "virtualbox")["provider"] if words[0] == "customize"]
    first = next(words for words in calls if words[0] == "usbfilter")
    numbers = dict(zip(first[5::2], first[6::2], strict=True))
    assert numbers["--vendorid"] == "0483"
    assert numbers["--productid"] == "374b"
    assert numbers["--serialnumber"] == "066BFF303430"


def test_vmware_connects_probes_when_plugged_in(settings: Path) -> None:
    ((_, options),) = _recorded_calls(settings, "vmware_desktop")["provider"]
    assert options["usb_xhci.present"] == "TRUE"
    assert options["usb.autoConnect.device0"] == "vid:0483 pid:374b autoclean:1"
    assert options["memsize"] == "2048"


def test_machine_gets_a_key_and_no_box_update(settings: Path) -> None:
    calls = [tuple(words) for words in _recorded_calls(settings, "libvirt")["common"]]
    assert ("box_check_update=", False) in calls
    assert ("insert_key=", True) in calls


def test_vagrantfile_alone_names_the_command() -> None:
    completed = subprocess.run(
        ["ruby", _FILE], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert "./inv vm.up starts the machine" in completed.stderr


def test_machine_uses_half_of_a_small_memory() -> None:
    assert memory_for(3 << 30) == 1536
    assert memory_for(64 << 30) == 4096


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["libvirt", "virtualbox"])
def test_vagrant_validates_the_file(settings: Path, tmp_path: Path, provider: str) -> None:
    """VirtualBox is a fake program that prints its version. VMware's plugin is not in Debian."""
    if shutil.which("vagrant") is None:
        pytest.skip("this machine lacks vagrant: apt-get install vagrant vagrant-libvirt")
    fake = tmp_path / "VBoxManage"
    fake.write_text("#!/bin/sh\necho 7.0.20r163906\n")
    fake.chmod(0o755)
    completed = subprocess.run(
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
    assert completed.returncode == 0, completed.stdout + completed.stderr
