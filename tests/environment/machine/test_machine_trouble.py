# SPDX-License-Identifier: Apache-2.0
"""Errors before there is a machine: one message each. The programs are fakes with the output of the real ones."""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.environment.machine.conftest import Fake
from utvm.base.storage import lock
from utvm.environment.locked import load_lock_files
from utvm.environment.machine import libvirt, vagrant
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.settings import Records, UsbFilter
from utvm.environment.machine.vagrant import Vagrant
from utvm.errors import ConfigError, ProvisionError, UtvmError
from utvm.paths import ROOT

# An empty libvirt.
_EMPTY = "exit 0"
_NOBODY = (
    'echo "error: failed to connect to the hypervisor" >&2\n'
    "echo \"error: Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory\" >&2\n"
    "exit 1"
)


def _fail() -> None:
    raise AssertionError("nobody asked for a box to be made")


def _error_of_up(records: Records) -> UtvmError:
    with pytest.raises(UtvmError) as caught:
        Machine(records).up()
    assert not records.folder.exists()
    return caught.value


def test_missing_libvirt_is_named(fake: Fake, records: Records) -> None:
    problem = _error_of_up(records)
    assert "virsh is not installed" in problem.message
    assert "apt-get install" in problem.hint


def test_libvirt_of_systemd_is_not_started(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("virsh", _NOBODY)
    monkeypatch.setattr(libvirt, "SYSTEMD", tmp_path)
    problem = _error_of_up(records)
    assert "does not answer" in problem.message
    assert problem.hint == "start it: sudo systemctl start libvirtd"


@pytest.mark.parametrize(
    "message",
    [
        "error: Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied",
        "error: authentication unavailable: no polkit agent available to authenticate action",
    ],
)
def test_denied_access_names_the_group(fake: Fake, records: Records, message: str) -> None:
    fake("virsh", f'echo "{message}" >&2; exit 1')
    problem = _error_of_up(records)
    assert problem.message == "libvirt denies you access"
    assert "usermod -aG libvirt" in problem.hint


@pytest.mark.parametrize(
    ("limit", "hint"), [("-n 900", "-n 1024"), ("-f 1000000", "-f unlimited"), ("-v 50000000", "-v unlimited")]
)
def test_daemon_is_not_started_with_a_low_limit(limit: str, hint: str, tmp_path: Path) -> None:
    """A daemon keeps the limits of the shell that started it. Here no libvirt answers, and the daemon is a fake."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in (("virsh", _NOBODY), ("libvirtd", f"touch {tmp_path}/started")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    script = (
        f"import os, pathlib; from utvm.environment.machine import libvirt\n"
        f"libvirt.FOLDER = pathlib.Path({str(tmp_path)!r}); libvirt.SYSTEMD = libvirt.FOLDER / 'none'\n"
        "os.geteuid = lambda: 0\n"
        "with libvirt.running_libvirt(print): pass"
    )
    command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", sys.executable, "-c", script]
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    completed = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    last = completed.stderr.splitlines()[-2:]
    assert "ProvisionError: libvirt's daemon does not run, and could not work with this shell's limit" in last[0]
    assert last[1] == f"  hint: raise it: ulimit {hint}"
    assert not (tmp_path / "started").exists()


def test_missing_vagrant_is_named(fake: Fake, records: Records) -> None:
    fake("virsh", _EMPTY)
    assert _error_of_up(records).message == "vagrant is not installed"


@pytest.mark.parametrize("existing", ["none", "another"])
def test_missing_box_is_built(
    existing: str, fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there is a box of other locks. The box is an empty file, and its builder a fake."""
    catalogue = tmp_path / "utvm.json"
    box = vagrant.locked_box(load_lock_files())

    def write(name: str) -> None:
        provider = {"name": "libvirt", "url": "utvm.box", "checksum_type": "sha256", "checksum": "0" * 64}
        versions = [{"version": box.version, "providers": [provider]}]
        catalogue.write_text(json.dumps({"name": name, "versions": versions}))

    fake("vagrant", f'case "$*" in *"box add"*) cp "$3" {tmp_path}/added; mkdir -p {box.folder};; esac')
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", catalogue)
    if existing == "another":
        write("utvm/another")
    builds = []
    assert vagrant.ensure_box(box, Vagrant(records), "", lambda: builds.append(write(box.name)))
    assert len(builds) == 1
    assert json.loads((tmp_path / "added").read_text())["name"] == box.name
    with pytest.raises(ConfigError, match="there is no box"):
        vagrant.ensure_box(box, Vagrant(records), str(tmp_path / "nowhere.json"), _fail)


def test_time_to_build_a_box_is_printed_first(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty cache and no mirror for apt, the build ends early and leaves nothing."""
    fake("virsh", _EMPTY)
    fake("vagrant", "exit 0")
    fake("apt-get", "exit 0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", tmp_path / "none.json")
    messages: list[str] = []
    with pytest.raises(ProvisionError, match="apt has no source"):
        Machine(records, messages.append).up()
    size = sum(package.size for package in load_lock_files().machine_packages) // 1_000_000
    assert any(f"building it takes 3 minutes on two idle cores, with {size} MB to fetch" in line for line in messages)


def test_status_starts_nothing(fake: Fake, records: Records, tmp_path: Path) -> None:
    fake("virsh", _NOBODY)
    for daemon in ("virtlogd", "libvirtd"):
        fake(daemon, f"touch {tmp_path}/started")
    status = Machine(records).status()
    assert (status.domain, "does not answer" in status.problem) == (None, True)
    records.create()
    records.finish({"box": "utvm/x"})
    with pytest.raises(ProvisionError, match="does not answer") as caught:
        Machine(records).snapshots()
    assert "vm.up" in caught.value.hint
    assert not (tmp_path / "started").exists()


def test_foreign_machine_of_that_name_is_left_alone(fake: Fake, records: Records, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    fake(
        "virsh",
        f'echo "$*" >>{calls}\n'
        f'case "$*" in *"list --all --name"*) echo {records.name};;'
        " *dumpxml*) echo '<domain><description>a server of mine</description></domain>';;"
        " *dominfo*) echo 'State:          running';; esac",
    )
    with pytest.raises(ProvisionError, match=r"not this checkout's \(a server of mine\)"):
        Machine(records).up()
    with pytest.raises(ProvisionError, match="not this checkout's"):
        Machine(records).destroy()
    assert not any(word in calls.read_text() for word in ("destroy", "undefine"))


def test_machine_may_disappear_during_the_listing(fake: Fake, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    fake(
        "virsh",
        f'case "$*" in *"list --all"*) [ -e {gone} ] || echo utvm-another;;'
        f" *dumpxml*) echo >{gone}; echo 'error: failed to get domain' >&2; exit 1;; esac",
    )
    assert libvirt.domains() == []
    gone.unlink()
    fake("virsh", 'case "$*" in *"list --all"*) echo utvm-another;; *) echo "error: no" >&2; exit 1;; esac')
    with pytest.raises(libvirt.LibvirtError):
        libvirt.domains()


def test_command_waits_for_another_checkout(fake: Fake, records: Records) -> None:
    fake("virsh", _EMPTY)
    messages: list[str] = []
    other_checkout = contextlib.ExitStack()
    other_checkout.enter_context(lock.hold("making virtual machines"))

    def record(message: str) -> None:
        messages.append(message)
        other_checkout.close()

    Machine(records, record).destroy()
    assert messages == ["waiting: another checkout's machine is being created or removed"]


def test_error_of_libvirt_is_passed_on(fake: Fake) -> None:
    fake("virsh", 'echo "error: Failed to start domain" >&2; echo "error: internal error: no bridge" >&2; exit 1')
    with pytest.raises(libvirt.LibvirtError, match="no bridge"):
        libvirt.virsh("start", "x")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("The provider 'libvirt' could not be found, but was requested to", "Vagrant has no libvirt provider"),
        ("The checksum of the downloaded box did not match the expected", "the checksum of the box differs"),
        ("write: No space left on device", "the disk is full"),
        ("Something nobody has heard of", "vagrant up failed; its last lines are:\nSomething nobody"),
    ],
)
def test_failure_of_vagrant_is_one_message(fake: Fake, records: Records, output: str, message: str) -> None:
    fake("vagrant", f'echo "{output}" >&2; exit 1')
    records.create()
    with pytest.raises(ProvisionError) as caught:
        Vagrant(records).up()
    assert message in caught.value.message


def test_vagrant_has_its_own_boxes_and_records(fake: Fake, records: Records, tmp_path: Path) -> None:
    fake("vagrant", 'echo "$VAGRANT_HOME $VAGRANT_DOTFILE_PATH $UTVM_MACHINE $*"')
    records.create()
    Vagrant(records).halt()
    home, dotfiles, settings, *words = records.log.read_text().split()
    assert (home, dotfiles) == (str(tmp_path / "data" / "utvm" / "vagrant"), str(records.vagrant))
    assert (settings, words) == (str(records.settings), ["halt", "--no-tty"])


def test_known_box_is_not_added_again(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = vagrant.locked_box(load_lock_files())
    # Output of Vagrant 2.3.4, without --no-tty.
    fake(
        "vagrant",
        'case "$*" in "box list --machine-readable") echo "a warning of Ruby\'s" >&2\n'
        f"echo 1763799000,,box-name,{box.name}\necho 1763799000,,box-provider,libvirt\n"
        f"echo 1763799000,,box-version,{box.version};; *) exit 1;; esac",
    )
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", tmp_path / "none.json")
    records.create()
    assert not vagrant.ensure_box(box, Vagrant(records), "", _fail)


@pytest.fixture
def web_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and its URL."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _catalogue(name: str, version: str) -> str:
    providers = [{"name": "libvirt", "url": "utvm.box", "checksum_type": "sha256", "checksum": "0" * 64}]
    return json.dumps({"name": name, "versions": [{"version": version, "providers": providers}]})


def test_box_is_added_from_any_web_folder(
    fake: Fake, records: Records, tmp_path: Path, web_folder: tuple[Path, str]
) -> None:
    folder, url = web_folder
    added = tmp_path / "added.json"
    box = vagrant.locked_box(load_lock_files())
    rows = f"1,,box-name,{box.name}\\n1,,box-provider,libvirt\\n1,,box-version,{box.version}\\n"
    fake(
        "vagrant",
        f'case "$*" in "box add"*) cp "$3" {added}; mkdir -p {box.folder};;'
        f' "box list"*) if [ -d {box.folder} ]; then printf "{rows}"; fi;; esac',
    )
    records.create()
    (folder / "utvm.json").write_text(_catalogue(box.name, box.version))
    assert vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _fail)
    (version,) = json.loads(added.read_text())["versions"]
    assert version["providers"][0]["url"] == f"{url}/utvm.box"
    # The box exists now; one with another checksum replaces it.
    assert not vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _fail)
    (folder / "utvm.json").write_text(_catalogue(box.name, box.version).replace("0" * 64, "1" * 64))
    assert vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _fail)


def test_box_of_another_environment_is_refused(fake: Fake, records: Records, web_folder: tuple[Path, str]) -> None:
    folder, url = web_folder
    fake("vagrant", "exit 0")
    records.create()
    (folder / "utvm.json").write_text(_catalogue("utvm/000000000000", "2020.01.01"))
    with pytest.raises(ConfigError, match="has the box utvm/000000000000, the checkout's locks require utvm/"):
        vagrant.ensure_box(vagrant.locked_box(load_lock_files()), Vagrant(records), f"{url}/utvm.json", _fail)


@pytest.mark.parametrize(
    ("content", "problem"), [("<html>", "is not a box catalogue"), ("[]", "is not a box catalogue")]
)
def test_invalid_catalogue_is_refused(
    fake: Fake, records: Records, web_folder: tuple[Path, str], content: str, problem: str
) -> None:
    folder, url = web_folder
    fake("vagrant", "exit 0")
    records.create()
    (folder / "utvm.json").write_text(content)
    with pytest.raises(ConfigError, match=problem):
        vagrant.ensure_box(vagrant.locked_box(load_lock_files()), Vagrant(records), f"{url}/utvm.json", _fail)


def test_missing_catalogue_is_named(fake: Fake, records: Records, web_folder: tuple[Path, str]) -> None:
    fake("vagrant", "exit 0")
    records.create()
    with pytest.raises(ProvisionError, match=r"/none\.json: cannot be fetched: File not found"):
        vagrant.ensure_box(vagrant.locked_box(load_lock_files()), Vagrant(records), f"{web_folder[1]}/none.json", _fail)


@pytest.mark.parametrize("call", ["halt", "suspend", "snapshots", "shell"])
def test_commands_without_a_machine_give_a_hint(fake: Fake, records: Records, call: str) -> None:
    fake("virsh", _EMPTY)
    with pytest.raises(ProvisionError) as caught:
        getattr(Machine(records), call)()
    assert (caught.value.message, caught.value.hint) == ("this checkout has no machine", "./inv vm.up creates one")


@pytest.mark.parametrize("detaching", [0, 1], ids=["plugged in", "unplugged meanwhile"])
def test_probe_is_attached_and_detached(fake: Fake, tmp_path: Path, detaching: int) -> None:
    calls = tmp_path / "calls"
    fake(
        "virsh",
        f'echo "$4 $5 $7" >>{calls}; [ "$4" = attach-device ] && cat "$6" >>{calls} && echo >>{calls} && exit 0\n'
        f"exit {detaching}",
    )
    with libvirt.attached_device("utvm-one", UsbFilter("0x0483", "0x374b", "066BFF", bus=1, device=4)):
        lines = calls.read_text().splitlines()
    assert lines[0] == "attach-device utvm-one --live"
    source = ElementTree.fromstring(lines[1]).find("source")
    assert source is not None
    assert [(element.tag, element.attrib) for element in source] == [
        ("vendor", {"id": "0x0483"}),
        ("product", {"id": "0x374b"}),
        ("address", {"bus": "1", "device": "4"}),
    ]
    assert calls.read_text().splitlines()[2:] == ["detach-device utvm-one --live"]
