# SPDX-License-Identifier: Apache-2.0
"""What goes wrong before there is a machine: one message each. The programs are fakes that speak like the real."""

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


def _never() -> None:
    raise AssertionError("nobody asked for a box to be made")


def _up(records: Records) -> UtvmError:
    with pytest.raises(UtvmError) as caught:
        Machine(records).up()
    assert not records.folder.exists()
    return caught.value


def test_without_libvirt_that_is_said(fake: Fake, records: Records) -> None:
    problem = _up(records)
    assert "virsh is not installed" in problem.message
    assert "apt-get install" in problem.hint


def test_a_libvirt_that_systemd_has_not_started_is_left_to_it(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("virsh", _NOBODY)
    monkeypatch.setattr(libvirt, "_SYSTEMD", tmp_path)
    problem = _up(records)
    assert "does not answer" in problem.message
    assert problem.hint == "start it: sudo systemctl start libvirtd"


@pytest.mark.parametrize(
    "said",
    [
        "error: Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied",
        "error: authentication unavailable: no polkit agent available to authenticate action",
    ],
)
def test_a_libvirt_that_does_not_let_one_in_names_its_group(fake: Fake, records: Records, said: str) -> None:
    fake("virsh", f'echo "{said}" >&2; exit 1')
    problem = _up(records)
    assert problem.message == "libvirt denies you access"
    assert "usermod -aG libvirt" in problem.hint


@pytest.mark.parametrize(
    ("limit", "hint"), [("-n 900", "-n 1024"), ("-f 1000000", "-f unlimited"), ("-v 50000000", "-v unlimited")]
)
def test_daemon_is_not_started_with_a_low_limit(limit: str, hint: str, tmp_path: Path) -> None:
    """A daemon lives on with what the shell of its first command has set. Nobody answers, and it is a fake."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in (("virsh", _NOBODY), ("libvirtd", f"touch {tmp_path}/started")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    script = (
        f"import os, pathlib; from utvm.environment.machine import libvirt\n"
        f"libvirt.FOLDER = pathlib.Path({str(tmp_path)!r}); libvirt._SYSTEMD = libvirt.FOLDER / 'none'\n"
        "os.geteuid = lambda: 0\n"
        "with libvirt.running_libvirt(print): pass"
    )
    words = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", sys.executable, "-c", script]
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    last = done.stderr.splitlines()[-2:]
    assert "ProvisionError: libvirt's daemon does not run, and could not work with this shell's limit" in last[0]
    assert last[1] == f"  hint: raise it: ulimit {hint}"
    assert not (tmp_path / "started").exists()


def test_without_vagrant_that_is_said(fake: Fake, records: Records) -> None:
    fake("virsh", _EMPTY)
    assert _up(records).message == "vagrant is not installed"


@pytest.mark.parametrize("there", ["none", "another"])
def test_a_box_that_is_not_there_is_made(
    there: str, fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is one of other locks. The box is an empty file; who makes it is a stand-in."""
    catalogue = tmp_path / "utvm.json"
    box = vagrant.locked_box(load_lock_files())

    def write(name: str) -> None:
        provider = {"name": "libvirt", "url": "utvm.box", "checksum_type": "sha256", "checksum": "0" * 64}
        versions = [{"version": box.version, "providers": [provider]}]
        catalogue.write_text(json.dumps({"name": name, "versions": versions}))

    fake("vagrant", f'case "$*" in *"box add"*) cp "$3" {tmp_path}/added; mkdir -p {box.folder};; esac')
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", catalogue)
    if there == "another":
        write("utvm/another")
    made = []
    assert vagrant.ensure_box(box, Vagrant(records), "", lambda: made.append(write(box.name)))
    assert len(made) == 1
    assert json.loads((tmp_path / "added").read_text())["name"] == box.name
    with pytest.raises(ConfigError, match="there is no box"):
        vagrant.ensure_box(box, Vagrant(records), str(tmp_path / "nowhere.json"), _never)


def test_how_long_a_box_takes_is_said_first(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in the cache, and apt knows no mirror: it ends there, and nothing is left."""
    fake("virsh", _EMPTY)
    fake("vagrant", "exit 0")
    fake("apt-get", "exit 0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", tmp_path / "none.json")
    said: list[str] = []
    with pytest.raises(ProvisionError, match="apt has no source"):
        Machine(records, said.append).up()
    size = sum(package.size for package in load_lock_files().machine_packages) // 1_000_000
    assert any(f"building it takes 3 minutes on two idle cores, with {size} MB to fetch" in line for line in said)


def test_looking_starts_nothing(fake: Fake, records: Records, tmp_path: Path) -> None:
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


def test_a_machine_of_that_name_which_is_not_ours_is_left_alone(fake: Fake, records: Records, tmp_path: Path) -> None:
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


def test_another_checkout_s_machine_may_go_while_we_look(fake: Fake, tmp_path: Path) -> None:
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


def test_while_another_checkout_s_machine_is_made_one_waits(fake: Fake, records: Records) -> None:
    fake("virsh", _EMPTY)
    heard: list[str] = []
    making = contextlib.ExitStack()
    making.enter_context(lock.hold("making virtual machines"))

    def hear(said: str) -> None:
        heard.append(said)
        making.close()

    Machine(records, hear).destroy()
    assert heard == ["waiting: another checkout's machine is being created or removed"]


def test_what_libvirt_says_is_passed_on(fake: Fake) -> None:
    fake("virsh", 'echo "error: Failed to start domain" >&2; echo "error: internal error: no bridge" >&2; exit 1')
    with pytest.raises(libvirt.LibvirtError, match="no bridge"):
        libvirt.virsh("start", "x")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("The provider 'libvirt' could not be found, but was requested to", "Vagrant has no libvirt provider"),
        ("The checksum of the downloaded box did not match the expected", "the checksum of the box differs"),
        ("write: No space left on device", "the disk is full"),
        ("Something nobody has heard of", "vagrant up failed; its last lines are:\nSomething nobody"),
    ],
)
def test_a_failure_of_vagrant_is_one_message(fake: Fake, records: Records, said: str, message: str) -> None:
    fake("vagrant", f'echo "{said}" >&2; exit 1')
    records.create()
    with pytest.raises(ProvisionError) as caught:
        Vagrant(records).up()
    assert message in caught.value.message


def test_vagrant_has_boxes_and_records_of_its_own(fake: Fake, records: Records, tmp_path: Path) -> None:
    fake("vagrant", 'echo "$VAGRANT_HOME $VAGRANT_DOTFILE_PATH $UTVM_MACHINE $*"')
    records.create()
    Vagrant(records).halt()
    home, own, settings, *words = records.log.read_text().split()
    assert (home, own) == (str(tmp_path / "data" / "utvm" / "vagrant"), str(records.vagrant))
    assert (settings, words) == (str(records.settings), ["halt", "--no-tty"])


def test_a_box_that_vagrant_has_is_not_added_again(
    fake: Fake, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = vagrant.locked_box(load_lock_files())
    # As Vagrant 2.3.4 prints it, without --no-tty.
    fake(
        "vagrant",
        'case "$*" in "box list --machine-readable") echo "a warning of Ruby\'s" >&2\n'
        f"echo 1763799000,,box-name,{box.name}\necho 1763799000,,box-provider,libvirt\n"
        f"echo 1763799000,,box-version,{box.version};; *) exit 1;; esac",
    )
    monkeypatch.setattr(vagrant, "LOCAL_CATALOGUE", tmp_path / "none.json")
    records.create()
    assert not vagrant.ensure_box(box, Vagrant(records), "", _never)


@pytest.fixture
def web_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where it is on the web."""
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


def test_a_box_is_taken_from_any_web_folder(
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
    assert vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _never)
    (version,) = json.loads(added.read_text())["versions"]
    assert version["providers"][0]["url"] == f"{url}/utvm.box"
    # It is there now; other bytes under the same name take its place.
    assert not vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _never)
    (folder / "utvm.json").write_text(_catalogue(box.name, box.version).replace("0" * 64, "1" * 64))
    assert vagrant.ensure_box(box, Vagrant(records), f"{url}/utvm.json", _never)


def test_another_environment_s_box_is_refused(fake: Fake, records: Records, web_folder: tuple[Path, str]) -> None:
    folder, url = web_folder
    fake("vagrant", "exit 0")
    records.create()
    (folder / "utvm.json").write_text(_catalogue("utvm/000000000000", "2020.01.01"))
    with pytest.raises(ConfigError, match="has the box utvm/000000000000, the checkout's locks require utvm/"):
        vagrant.ensure_box(vagrant.locked_box(load_lock_files()), Vagrant(records), f"{url}/utvm.json", _never)


@pytest.mark.parametrize(
    ("content", "problem"), [("<html>", "is not a box catalogue"), ("[]", "is not a box catalogue")]
)
def test_what_is_no_catalogue_is_refused(
    fake: Fake, records: Records, web_folder: tuple[Path, str], content: str, problem: str
) -> None:
    folder, url = web_folder
    fake("vagrant", "exit 0")
    records.create()
    (folder / "utvm.json").write_text(content)
    with pytest.raises(ConfigError, match=problem):
        vagrant.ensure_box(vagrant.locked_box(load_lock_files()), Vagrant(records), f"{url}/utvm.json", _never)


def test_a_catalogue_that_is_not_there_says_where(fake: Fake, records: Records, web_folder: tuple[Path, str]) -> None:
    fake("vagrant", "exit 0")
    records.create()
    with pytest.raises(ProvisionError, match=r"/none\.json: cannot be fetched: File not found"):
        vagrant.ensure_box(
            vagrant.locked_box(load_lock_files()), Vagrant(records), f"{web_folder[1]}/none.json", _never
        )


@pytest.mark.parametrize("call", ["halt", "suspend", "snapshots", "shell"])
def test_without_a_machine_every_command_says_how_to_get_one(fake: Fake, records: Records, call: str) -> None:
    fake("virsh", _EMPTY)
    with pytest.raises(ProvisionError) as caught:
        getattr(Machine(records), call)()
    assert (caught.value.message, caught.value.hint) == ("this checkout has no machine", "./inv vm.up creates one")


@pytest.mark.parametrize("detaching", [0, 1], ids=["plugged in", "unplugged meanwhile"])
def test_a_probe_is_lent_to_the_machine_and_taken_back(fake: Fake, tmp_path: Path, detaching: int) -> None:
    calls = tmp_path / "calls"
    fake(
        "virsh",
        f'echo "$4 $5 $7" >>{calls}; [ "$4" = attach-device ] && cat "$6" >>{calls} && echo >>{calls} && exit 0\n'
        f"exit {detaching}",
    )
    with libvirt.attached_device("utvm-one", UsbFilter("0x0483", "0x374b", "066BFF", bus=1, device=4)):
        said = calls.read_text().splitlines()
    assert said[0] == "attach-device utvm-one --live"
    source = ElementTree.fromstring(said[1]).find("source")
    assert source is not None
    assert [(each.tag, each.attrib) for each in source] == [
        ("vendor", {"id": "0x0483"}),
        ("product", {"id": "0x374b"}),
        ("address", {"bus": "1", "device": "4"}),
    ]
    assert calls.read_text().splitlines()[2:] == ["detach-device utvm-one --live"]
