# SPDX-License-Identifier: Apache-2.0
"""Where room, rights, files or memory are scarce, each command says so in a line: no verdict, no fault of ours.

A process has mounts of its own here, so that a full or a read-only disk is one, and the kernel's own limits.
"""

import io
import itertools
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.processes import may_make_mounts
from utvm.cli.model_run import read_arrays
from utvm.config import Record, load_yaml
from utvm.errors import ConfigError, ExitCode
from utvm.paths import ROOT

_DIGITS = str(ROOT / "models" / "digits" / "digits.onnx")
_MODEL = ("--model", _DIGITS)
_BOARD = ("--board", "stm32f746", "--virtual")

# Each with what it writes where OUT is. Not here: what makes an image or a machine, or removes one. There is no
# engine.
_COMMANDS: dict[str, tuple[str, ...]] = {
    "board.detect": (),
    "board.install-udev": ("--output", "OUT"),
    "board.list": (),
    "board.serve": (*_MODEL, *_BOARD, "--port", "0"),
    "board.show": ("stm32f746",),
    "cache.prune": ("--dry-run",),
    "cache.size": (),
    "docker.run": ("true",),
    "docker.shell": (),
    "docs.boards": (),
    "docs.schemas": (),
    "doctor": (),
    "env.diff": (),
    "firmware.build": (*_MODEL, "--board", "stm32f746", "--output", "OUT/f.elf", "--input", "IN/x.npy"),
    "firmware.size": (*_MODEL, "--board", "stm32f746"),
    "hil": (*_BOARD, "--suite", "health"),
    "model.eval": ("--model", "digits", *_BOARD, "--samples", "2", "--json", "OUT/r.json"),
    "model.package": (*_MODEL, "--output", "OUT/p.tar.gz"),
    "model.profile": (*_MODEL, *_BOARD, "--json", "OUT/r.json"),
    "model.report": (*_MODEL, "--json", "OUT/r.json"),
    "model.run": (*_MODEL, *_BOARD, "--json", "OUT/r.json"),
    "nightly": ("--config", "IN/nightly.yaml", "--jobs", "1", "--report-dir", "OUT/nightly"),
    "vm.run": ("true",),
    "vm.snapshot": (),
    "vm.status": (),
}
# What runs until Ctrl-C gets that after so many seconds: at whatever moment that is, it ends well.
_UNTIL_INTERRUPTED = {"board.serve": 10}
# They say more than one thing, of more than one board or test.
_SAY_MORE = ("doctor", "hil", "nightly")

_FULL = "mount -t tmpfs -o size={0} none $CACHE && mount -t tmpfs -o size={0} none $OUT && " + (
    "mount -t tmpfs -o size={0} none $BUILD"
)
_SCARCE: dict[str, str] = {
    **{
        f"{size} of disk": _FULL.format(size)
        for size in ("4k", "16k", "64k", "256k", "1m", "2m", "4m", "8m", "16m", "32m")
    },
    "a cache that cannot be written": "mount -t tmpfs -o ro none $CACHE",
    "an output that cannot be written": "mount -t tmpfs -o ro none $OUT",
    "a build folder that cannot be written": "mount -t tmpfs -o ro none $BUILD",
    # Where there is none, it is looked up: what is kept there is not to be touched.
    "no home": "home=$(getent passwd $(id -u) | cut -d: -f6); mkdir -p $home/.cache\n"
    "mount -t tmpfs none $home/.cache; unset HOME XDG_CACHE_HOME XDG_STATE_HOME",
    "a home that is not there": "export HOME=/nonexistent/x; unset XDG_CACHE_HOME XDG_STATE_HOME",
    "16 files": "ulimit -n 16",
    "32 files": "ulimit -n 32",
    "512 MB of memory": "ulimit -v 524288",
    "files of 64 kB": "ulimit -f 64",
}
# In CI, one of each kind with what it is likeliest to hit.
_SAMPLE = {
    ("model.run", "64k of disk"),
    ("hil", "1m of disk"),
    ("hil", "a build folder that cannot be written"),
    ("model.report", "a cache that cannot be written"),
    ("firmware.size", "no home"),
    ("hil", "16 files"),
    ("model.eval", "512 MB of memory"),
}


def _cases() -> list[object]:
    return [
        pytest.param(
            command,
            scarce,
            id=f"{command}, {scarce}",
            marks=pytest.mark.slow if (command, scarce) in _SAMPLE else pytest.mark.nightly,
        )
        for command, scarce in itertools.product(_COMMANDS, _SCARCE)
    ]


@pytest.mark.skipif(not may_make_mounts(), reason="no mounts of one's own here (unshare --mount)")
@pytest.mark.parametrize(("command", "scarce"), _cases())
def test_what_is_scarce_is_said_in_a_line(command: str, scarce: str, tmp_path: Path) -> None:
    places = {name: tmp_path / name.lower() for name in ("CACHE", "OUT", "IN")}
    for place in places.values():
        place.mkdir()
    np.save(places["IN"] / "x.npy", np.zeros((1, 1, 8, 8), dtype=np.float32))
    (places["IN"] / "nightly.yaml").write_text("boards: [{board: host, suites: [health]}]")
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    words = [command, *_COMMANDS[command]]
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    ends = _UNTIL_INTERRUPTED.get(command)
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-ec", f'{_SCARCE[scarce]}\nexec "$@"', "sh"),
            *(("timeout", "--signal=INT", "--preserve-status", str(ends)) if ends else ()),
            *(sys.executable, "-m", "utvm", *words),
        ],
        env={
            **os.environ,
            **{name: str(place) for name, place in places.items()},
            "BUILD": str(build),
            "XDG_CACHE_HOME": str(places["CACHE"]),
            "DOCKER_HOST": f"unix://{tmp_path}/no-engine",
        },
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (0, 2, 3), said
    assert "Traceback" not in said
    assert "internal error" not in said
    assert "FAILED" not in said
    if done.returncode and command not in _SAY_MORE and "interrupted" not in said:
        assert said.count("error: ") == 1, said


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000,
        "a: 2001-99-99",
        "a: !!float x",
        "a: !!timestamp x",
        "? {a: b}\n: c",
        "a: \0",
    ],
)
def test_yaml_that_is_none_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "board.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"board\.yaml: is (not valid YAML|nested too deeply)"):
        load_yaml(tmp_path / "board.yaml", Record)
    with pytest.raises(Exception):  # noqa: B017  PyYAML's word for each is another
        yaml.safe_load(text)


def test_where_no_file_can_be_opened_nothing_that_was_asked_for_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text("a: b")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(ConfigError) as scarce:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            load_yaml(tmp_path / "board.yaml", Record)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert scarce.value.exit_code is ExitCode.INFRASTRUCTURE
    with pytest.raises(ConfigError) as missing:
        load_yaml(tmp_path / "other.yaml", Record)
    assert missing.value.exit_code is ExitCode.USAGE


def _npy(compressed: bool) -> bytes:
    file = io.BytesIO()
    if compressed:
        np.savez_compressed(file, x=np.arange(6, dtype=np.float32))
    else:
        np.save(file, np.arange(6, dtype=np.float32).reshape(2, 3))
    return file.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_header_of_arrays_is_one_clear_error(tmp_path: Path, compressed: bool) -> None:
    whole, choice, refused = _npy(compressed), random.Random(1), 0
    path = tmp_path / "x.npy"
    for _ in range(400):
        spoilt = bytearray(whole)
        for _ in range(choice.randrange(1, 4)):
            spoilt[choice.randrange(len(spoilt))] = choice.randrange(256)
        path.write_bytes(spoilt)
        try:
            read_arrays(str(path))
        except ConfigError as error:
            assert str(path) in error.message
            refused += 1
    assert refused > 100


def test_an_array_that_no_memory_holds_is_one_clear_error(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    (tmp_path / "x.npy").write_bytes(header.getvalue())
    with pytest.raises(ConfigError, match=r"x\.npy"):
        read_arrays(str(tmp_path / "x.npy"))
