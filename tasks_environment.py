"""The table of contents, continued: the ``./inv`` commands of the frozen environment. The work is done in utvm."""

from pathlib import Path

from invoke import Context

from utvm.cli import task

_MIRROR = {
    "mirror": "URL of a Debian mirror; {archive} stands for debian and debian-security (default: apt's own)"
}


@task(name="lock", help=_MIRROR)
def env_lock(_: Context, mirror: str = "") -> None:
    """Resolve what the environment is made of into debian.lock, python.lock and wheels.lock (needs uv)."""
    from utvm.cli.environment import lock

    lock(mirror)


@task(name="verify", help=_MIRROR)
def env_verify(_: Context, mirror: str = "") -> None:
    """Check the locks against the lists, and every package file against the locks."""
    from utvm.cli.environment import verify

    verify(mirror)


@task(
    name="diff",
    positional=["old", "new"],
    help={"old": "a folder with the locks, or a Git revision", "new": "the same"},
)
def env_diff(_: Context, old: str, new: str) -> None:
    """Print what changed between two states of the locks, such as HEAD~1 and provision."""
    from utvm.cli.environment import diff

    diff(old, new)


@task(name="archive", help=_MIRROR | {"output": "the folder; it may hold other environments already"})
def env_archive(_: Context, output: str = "build/archive", mirror: str = "") -> None:
    """Save every package file, by its hash, into a folder that rebuilds with the network off."""
    from utvm.cli.environment import archive

    archive(Path(output), mirror)


@task(
    name="build",
    help=_MIRROR
    | {
        "no_cache": "make every layer anew, and compare it with the one that was kept",
        "json": "where to write the digest, sizes and times",
        "archive": "take the package files from this archive (see env.archive), not from the network",
        "export_only": "leave the Docker engine alone: only write the image into build/environment",
    },
)
def docker_build(
    _: Context,
    no_cache: bool = False,
    json: str = "",
    mirror: str = "",
    archive: str = "",
    export_only: bool = False,
) -> None:
    """Make the environment's container image from the locks, as an OCI layout and in the Docker engine."""
    from utvm.cli.environment import build_image

    build_image(no_cache, json, mirror, archive, export_only)


@task(
    name="box",
    help=_MIRROR
    | {
        "no_cache": "make every layer anew, and compare it with the one that was kept",
        "json": "where to write the digest, sizes and times",
        "archive": "take the package files from this archive (see env.archive), not from the network",
    },
)
def vm_box(_: Context, no_cache: bool = False, json: str = "", mirror: str = "", archive: str = "") -> None:
    """Make the environment's virtual machine from the locks, as a Vagrant box with its catalogue."""
    from utvm.cli.environment import build_machine_box

    build_machine_box(no_cache, json, mirror, archive)


_PROBE = {
    "board": "with this board's probes, on this computer's USB; without this or --probe there is no USB in it",
    "probe": "with the probe of this serial number",
}


@task(name="shell", help=_PROBE)
def docker_shell(_: Context, board: str = "", probe: str = "") -> int:
    """Open a shell in a container of the environment, in the checkout, as yourself."""
    from utvm.cli.environment import open_shell

    return open_shell(board, probe)


@task(name="run", positional=["command"], help=_PROBE | {"command": "one argument: a program and its arguments"})
def docker_run(_: Context, command: str, board: str = "", probe: str = "") -> int:
    """Run a command in a container of the environment, in the checkout, as yourself; its exit code is ours."""
    from utvm.cli.environment import run_in_container

    return run_in_container(command, board, probe)


@task(
    name="up",
    help={
        "box": "path or URL of a box's catalogue, for a machine that is yet to be made (default: vm.box's)",
        "fresh": "set the machine back to what it was when it was made; what is on its disk is lost",
    },
)
def vm_up(_: Context, box: str = "", fresh: bool = False) -> None:
    """Have the environment's virtual machine running, with the checkout in it."""
    from utvm.cli.machine import up

    up(box, fresh)


@task(name="ssh")
def vm_ssh(_: Context) -> int:
    """Open a shell in the virtual machine, in the checkout."""
    from utvm.cli.machine import open_shell

    return open_shell()


@task(name="run", positional=["command"], help={"command": "one argument: a program and its arguments"})
def vm_run(_: Context, command: str) -> int:
    """Run a command in the virtual machine, in the checkout; its exit code is ours."""
    from utvm.cli.machine import run

    return run(command)


@task(name="halt")
def vm_halt(_: Context) -> None:
    """Shut the virtual machine down; its disk stays."""
    from utvm.cli.machine import halt

    halt()


@task(name="suspend")
def vm_suspend(_: Context) -> None:
    """Write the virtual machine's memory to the disk and end it; vm.up goes on where it was."""
    from utvm.cli.machine import suspend

    suspend()


@task(name="resume")
def vm_resume(_: Context) -> None:
    """Go on with a suspended virtual machine, without copying the checkout."""
    from utvm.cli.machine import resume

    resume()


@task(
    name="snapshot",
    help={
        "save": "keep the machine as it is now, under this name",
        "restore": "have it as it was then; what it is now is lost",
        "delete": "forget that state",
    },
)
def vm_snapshot(_: Context, save: str = "", restore: str = "", delete: str = "") -> None:
    """List the states of the virtual machine that are kept, or keep, restore or forget one."""
    from utvm.cli.machine import snapshot

    snapshot(save, restore, delete)


@task(name="status")
def vm_status(_: Context) -> None:
    """Print what the virtual machine does, what it is made of, and what is left over."""
    from utvm.cli.machine import status

    status()


@task(name="destroy")
def vm_destroy(_: Context) -> None:
    """Remove the virtual machine with its disk, its snapshots and its network, whole or half made."""
    from utvm.cli.machine import destroy

    destroy()


MEMBERS = {
    "env": (env_lock, env_verify, env_diff, env_archive),
    "docker": (docker_build, docker_shell, docker_run),
    "vm": (
        *(vm_box, vm_up, vm_ssh, vm_run, vm_halt, vm_suspend, vm_resume),
        *(vm_snapshot, vm_status, vm_destroy),
    ),
}
"""The commands by the word before their dot."""
