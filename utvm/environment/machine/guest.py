# SPDX-License-Identifier: Apache-2.0
"""The running machine, reached by ssh and rsync."""

import contextlib
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from utvm.base.process import end_process, signals
from utvm.base.text.quoting import ssh_config
from utvm.base.text.templates import templates_of
from utvm.environment.image import CHECKOUT
from utvm.environment.machine import libvirt, settings
from utvm.environment.remote import LOST, bound_command, rsync, run_bound
from utvm.errors import ProvisionError

_USER = "vagrant"
_REPLACED = f"/home/{_USER}/replaced"
"""Folder in the guest for files that a copy of the checkout has replaced or removed."""
_LONGEST_START = 600.0
_LONGEST_ANSWER = 60.0
# Not in a container either, or the guest has its own.
_LEFT_OUT = ("/.git", "/.venv", "/build")

# Reply, set the clock, and report success: a suspended guest's clock had stopped.
_PROOF = "echo here; read now && sudo -n date --utc --set=@$now >/dev/null && echo set"


class Guest:
    def __init__(self, records: settings.Records) -> None:
        self._records = records

    def prove(self) -> None:
        """Wait until a command runs in the guest, and set its clock."""
        deadline = time.monotonic() + _LONGEST_START
        while True:
            if self._write_ssh_config() and self._answers():
                return
            domain = libvirt.domain(self._records.name)
            if domain is None or domain.state is not libvirt.State.RUNNING:
                state = domain.state.value if domain else "gone"
                raise ProvisionError(f"the machine is {state} before it answered", "start again: ./inv vm.up")
            if time.monotonic() > deadline:
                raise ProvisionError(
                    f"the machine runs but does not answer over ssh for {_LONGEST_START:g} s",
                    f"its screen: virsh -c qemu:///system console {self._records.name}",
                )
            time.sleep(0.5)

    def sync(self) -> None:
        """Copy the checkout to the guest. Files that only the guest has move to its home folder."""
        left_out = [f"--exclude={name}" for name in _LEFT_OUT]
        self._rsync(
            *("--delete", "--filter=:- .gitignore", *left_out, "--backup", f"--backup-dir={_REPLACED}"),
            f"{self._records.checkout}/",
            f"{self._records.name}:{CHECKOUT}/",
        )

    def send(self, host_path: Path, guest_path: str, without: Sequence[Path] = ()) -> None:
        """Copy a folder's contents into one of the guest, except folders ``without`` and ``.git``."""
        inside = [path.relative_to(host_path) for path in without if path.is_relative_to(host_path)]
        left_out = [f"--exclude=/{path}/" for path in (Path(".git"), *inside)]
        self._rsync("--mkpath", *left_out, f"{host_path}/", f"{self._records.name}:{Path(CHECKOUT) / guest_path}/")

    def fetch(self, guest_path: str, host_path: Path) -> None:
        """Copy a file, or the contents of a folder, out of the guest; relative paths are in the checkout."""
        self._rsync(
            f"{self._records.name}:{Path(CHECKOUT) / guest_path}{'/' * guest_path.endswith('/')}", str(host_path)
        )

    def run(self, words: Sequence[str]) -> int:
        """Run a command in the guest's checkout, pass its output on, and return its exit code."""
        return self._check_connection(run_bound(self._ssh("-T", shlex.join(bound_command(CHECKOUT, words)))))

    def shell(self) -> int:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ProvisionError("a shell needs a terminal", "vm.run runs a command without one")
        command = self._ssh("-t", f"cd {CHECKOUT} && exec bash --login")
        # The terminal is raw: every key goes to the guest, even Ctrl-C.
        return self._check_connection(subprocess.run(command, check=False).returncode)

    def _check_connection(self, code: int) -> int:
        if code == LOST and not self._answers():
            raise ProvisionError("the connection to the machine broke", "./inv vm.status shows its state")
        return code

    def _answers(self) -> bool:
        with subprocess.Popen(
            self._ssh("-T", _PROOF),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=signals.die_with_parent(),  # noqa: PLW1509  two system calls, no locks
        ) as dialogue:
            assert dialogue.stdin is not None and dialogue.stdout is not None
            # Treat a hanging command as no reply.
            limit = threading.Timer(_LONGEST_ANSWER, dialogue.kill)
            limit.start()
            try:
                if dialogue.stdout.readline() != b"here\n":
                    return False
                with contextlib.suppress(BrokenPipeError):
                    dialogue.stdin.write(f"{time.time():.3f}\n".encode())
                    dialogue.stdin.flush()
                return dialogue.stdout.readline() == b"set\n"
            finally:
                limit.cancel()
                end_process(dialogue, 0.0)

    def _ssh(self, *words: str) -> list[str]:
        return ["ssh", "-F", str(self._records.ssh_config), words[0], self._records.name, *words[1:]]

    def _rsync(self, *words: str) -> None:
        ssh = ["ssh", "-F", str(self._records.ssh_config)]
        rsync(ssh, *words, hint="is there space on both disks? ./inv vm.run 'df -h'")

    def _write_ssh_config(self) -> bool:
        """Write the guest's ssh configuration; return False if its address is unknown.

        After a long suspension, the guest's DHCP lease has expired and its address is lost.
        """
        address = libvirt.address(self._records.name)
        if address is None:
            return self._records.ssh_config.exists()
        text = templates_of("utvm.environment.machine").get_template("ssh_config.j2")
        values = {"key": ssh_config(str(self._records.key)), "known_hosts": ssh_config(str(self._records.known_hosts))}
        content = text.render(name=self._records.name, address=address, user=_USER, **values)
        self._records.ssh_config.write_text(content, encoding="utf-8")
        return True
