# SPDX-License-Identifier: Apache-2.0
"""``board.install-udev``: udev rules for the probes of all boards."""

import grp
import os
import shlex
from pathlib import Path

from utvm import boards
from utvm.base.storage.files import write_whole
from utvm.cli.output import OUT
from utvm.probe import udev
from utvm.probe.choice import with_st_links


def rules_for_boards() -> str:
    probes: dict[tuple[int, int], list[str]] = {}
    for board in boards.probe_boards():
        for probe in with_st_links(board.probes):
            names = probes.setdefault((probe.vendor, probe.product), [])
            if board.name not in names:
                names.append(board.name)
    return udev.rules(probes)


def install_udev(output: str) -> None:
    text = rules_for_boards()
    if output == "-":
        OUT.print(text, end="")
        OUT.print("would be written and applied, as root:")
        for words in udev.install_commands(Path(udev.NAME)):
            OUT.print(f"  {shlex.join(words)}")
        return
    if output:
        path = Path(output) / udev.NAME
        write_whole(path, text)
        OUT.print(f"{path}: written; nothing else was changed")
        return
    udev.install(text)
    OUT.print(f"{udev.FOLDER / udev.NAME}: installed")
    OUT.print("users at this machine may use probes now; replug one that ./inv board.detect cannot open")
    OUT.print(_remote_access())


def _remote_access() -> str:
    try:
        group = grp.getgrnam(udev.GROUP)
    except KeyError:
        return (
            f"over ssh and for services, access needs the group {udev.GROUP}, which this machine lacks: "
            f"sudo groupadd --system {udev.GROUP}, then start this command again"
        )
    if os.geteuid() == 0 or group.gr_gid in os.getgroups():
        return f"over ssh and for services, members of the group {udev.GROUP} have access"
    return (
        f"over ssh and for services, access needs the group {udev.GROUP}, and for serial lines dialout: "
        f"sudo usermod -aG {udev.GROUP},dialout $USER, then log in again"
    )
