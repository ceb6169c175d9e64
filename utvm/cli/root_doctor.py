# SPDX-License-Identifier: Apache-2.0
"""``doctor`` and ``board.install-udev``: this machine's dependencies and access to probes, and how to get them."""

import grp
import importlib.metadata
import os
import platform
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from utvm import boards, errors, paths
from utvm.base.process import run_tool
from utvm.base.storage.files import write_whole
from utvm.cli.output import OUT
from utvm.cli.scarcity import explain_scarcity
from utvm.environment.python_lock import LOCK, load_wheels
from utvm.environment.recipe import load_recipe
from utvm.probe import choice, udev
from utvm.probe.choice import with_st_links
from utvm.probe.usb import detect
from utvm.probe.vitals import examine as examine_probe
from utvm.toolchain.compiler import DIRECTORY, Toolchain


@dataclass(frozen=True)
class _Finding:
    """A dependency: its version or state if ``found``; ``needed`` if virtual boards need it."""

    what: str
    found: str
    advice: str = ""
    needed: bool = True


def examine() -> errors.ExitCode:
    findings = [*_packages(), *_tools(), *_simulators(), *_python(), *_usb()]
    complete = all(finding.found or not finding.needed for finding in findings)
    marks = {(True, True): ("ok", "green"), (False, True): ("missing", "red"), (False, False): ("-", "dim")}
    OUT.table(
        ("", "what", "found", "how to get it"),
        rows=[
            (
                Text(*marks[bool(finding.found), finding.needed or bool(finding.found)]),
                finding.what,
                finding.found or "-",
                "" if finding.found else finding.advice,
            )
            for finding in findings
        ],
    )
    OUT.results({"complete": complete, "findings": findings})
    if complete:
        OUT.print(f"This machine has what virtual boards need: {paths.COMMAND} hil --board stm32f746")
        return errors.ExitCode.PASSED
    OUT.print(
        "Something is missing; install it as the last column says."
        if paths.INSTALLED
        else "Something is missing; ./inv installs it when it is started with root or sudo."
    )
    return errors.ExitCode.INFRASTRUCTURE


def _packages() -> Iterator[_Finding]:
    if shutil.which("dpkg-query") is None:
        yield _Finding("Debian packages", f"not a Debian system ({platform.platform()})")
        return
    # A container of the environment lacks packages needed only by the project's own tests.
    left_out = load_recipe().debian.without if "UTVM_VENV" in os.environ else {}
    for line in (paths.DATA / "provision" / "debian.txt").read_text(encoding="utf-8").splitlines():
        name, _, purpose = line.partition(" ")
        if not name or name == "#" or name in left_out:
            continue
        try:
            version = run_tool(
                ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name],
                error=errors.ProvisionError,
            )
        except errors.ProvisionError as error:
            version = _check_missing(error)
        version_installed = version.removeprefix("installed ") if version.startswith("installed ") else ""
        # A Python that is not Debian's has its own venv.
        version_installed = version_installed or ("in use" if name == "python3-venv" else "")
        yield _Finding(name, version_installed, f"sudo apt-get install {name}  ({purpose.strip()})")


def _check_missing(error: errors.UtvmError) -> str:
    """Return an empty version; raise if the check failed because the computer is short of a resource."""
    if shortage := explain_scarcity(error):
        raise shortage
    return ""


def _tools() -> Iterator[_Finding]:
    for path in sorted(DIRECTORY.glob("*.yaml")):
        toolchain = Toolchain(path.stem)
        try:
            version = toolchain.version
        except errors.ToolchainError as error:
            version = _check_missing(error)
        advice = f"sudo apt-get install {' '.join(toolchain.data.packages)}"
        yield _Finding(f"toolchain {toolchain.name}", version, advice)


def _simulators() -> Iterator[_Finding]:
    for board in boards.chips():
        if simulator := board.virtual.simulator:
            program = shutil.which(simulator.program) or ""
            advice = f"build riscv-isa-sim; until then, {board.name} runs on utvm's own model"
            yield _Finding(f"Spike, for {board.name}", program, advice, needed=False)


def _python() -> Iterator[_Finding]:
    yield _Finding("Python", platform.python_version())
    locked = {wheel.name: wheel.version for wheel in load_wheels(LOCK, load_recipe().python)}
    for name in ("apache-tvm", "apache-tvm-ffi", "unicorn"):
        version = importlib.metadata.version(name)
        version_as_locked = version if version == locked[name] else ""
        yield _Finding(
            f"{name} as locked ({locked[name]})",
            version_as_locked,
            "pipx reinstall utvm" if paths.INSTALLED else "rm -r .venv, then start ./inv again",
        )


def _usb() -> Iterator[_Finding]:
    detection = detect([ids for board in boards.probe_boards() for ids in choice.ids_of(board)])
    present = "" if detection.problem else "yes"
    yield _Finding("USB stack", present, detection.problem or "", needed=False)
    probes = ", ".join(probe.full_name for probe in detection.probes)
    yield _Finding("debug probes", probes, "plug a board in; virtual boards need none", needed=False)
    for probe in detection.probes:
        vitals = examine_probe(probe)
        advice = probe.problem or ("" if vitals.is_powered else vitals.remark)
        state = ", ".join(filter(None, ("may be used", vitals.full_name, vitals.left_out)))
        yield _Finding(f"{probe.kind} at {probe.usb_path}", "" if advice else state, advice, needed=False)
    yield _Finding("udev rules for probes", *_udev_rules(), needed=False)


def _udev_rules() -> tuple[str, str]:
    """Return the installed rules, or advice if they are not sufficient."""
    install = f"{paths.COMMAND} board.install-udev"
    if ours := udev.installed_rules():
        return (udev.NAME, "") if ours == rules_for_boards() else ("", f"{install}: installed for other boards")
    rules = next(Path("/lib/udev/rules.d").glob("*openocd*"), None)
    return rules.name if rules else "", install


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
