# SPDX-License-Identifier: Apache-2.0
"""With scarce disk space, permissions, files or memory, each command prints one error, without a verdict or an internal
error."""

import errno
import io
import itertools
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from hil_tests.bitstreams import build_bitstream
from tasks import namespace
from tests.cli.running import inv
from tests.cli.scarce import SCARCE, call, create_folders
from tests.processes import may_make_mounts
from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.cache import cache_root
from utvm.base.storage.config import Record, load_yaml
from utvm.cli.scarcity import explain_scarcity
from utvm.errors import ConfigError, ExitCode
from utvm.paths import ROOT

_DIGITS = str(ROOT / "models" / "digits" / "digits.onnx")
_SAMPLES = str(ROOT / "models" / "digits" / "samples.npz")
_MODEL = ("--model", _DIGITS)
_BOARD = ("--board", "stm32f746", "--virtual")

# Downloads fail at once: they are not tested here.
_NOWHERE = ("--mirror", "http://127.0.0.1:9/{archive}")

# Each command writes to OUT if it can. There is no container engine and no virtual machine.
_COMMANDS: dict[str, tuple[str, ...]] = {
    "board.check": _BOARD,
    "board.detect": (),
    "board.gdb": (*_MODEL, *_BOARD, "--vscode"),
    "board.install-udev": ("--output", "OUT"),
    "board.list": (),
    "board.monitor": (*_BOARD, "--seconds", "1"),
    "board.new": ("--from", "IN/chip.yaml", "--chip", "nRF51822_xxAA", "--output", "OUT/new"),
    "board.program-fpga": ("--board", "pynq-z1", "--virtual", "--bitstream", "IN/vta.bit"),
    "board.reset": _BOARD,
    "board.serve": (*_MODEL, *_BOARD, "--port", "0"),
    "board.show": ("stm32f746",),
    "board.virtual": ("--board", "stm32f746", "--port", "0"),
    "cache.prune": ("--dry-run",),
    "dashboard": (),
    "docker.build": ("--export-only", *_NOWHERE),
    "docker.run": ("true",),
    "docs.site": ("--output", "OUT/site"),
    "doctor": (),
    "env.archive": ("--output", "OUT/archive", *_NOWHERE),
    "env.audit": ("--advisories", "IN"),
    "env.lock": _NOWHERE,
    "farm.export": ("--virtual", "host", "--through", "nowhere.invalid"),
    "farm.heal": ("all",),
    "farm.list": (),
    "farm.quarantine": ("desk-stm32f746-1",),
    "farm.up": ("--virtual", "host"),
    "firmware.build": (*_MODEL, "--board", "stm32f746", "--output", "OUT/f.elf", "--input", "IN/x.npy"),
    "firmware.flash": (*_BOARD, "--elf", "IN/f.elf"),
    "firmware.size": (*_MODEL, "--board", "stm32f746"),
    "hil": (*_BOARD, "--suite", "health"),
    "history.bisect": ("digits:instructions", "--board", "stm32f746"),
    "history.changes": (),
    "history.export": ("--output", "OUT/history.csv"),
    "history.import": ("IN",),
    "history.prune": ("400d",),
    "history.trend": ("digits",),
    "init": ("OUT/project",),
    "mlperf.run": (*_MODEL, *_BOARD, "--samples", "1"),
    "model.compare": (_DIGITS, "--boards", "host", "--output", "OUT/compare.svg"),
    "model.eval": ("--model", "digits", *_BOARD, "--samples", "2", "--json", "OUT/r.json"),
    "model.package": (*_MODEL, "--output", "OUT/p.tar.gz"),
    "model.profile": (*_MODEL, *_BOARD, "--json", "OUT/r.json"),
    "model.quantize": (*_MODEL, "--samples", _SAMPLES, "--output", "OUT/digits_int8.onnx"),
    "model.report": (*_MODEL, "--json", "OUT/r.json"),
    "model.run": (*_MODEL, *_BOARD, "--json", "OUT/r.json"),
    "model.tune": (*_MODEL, "--board", "host", "--trials", "1", "--log", "OUT/tuning.jsonl"),
    "nightly": ("--config", "IN/nightly.yaml", "--jobs", "1", "--report-dir", "OUT/nightly"),
    "project.build": ("IN",),
    "project.create": (*_MODEL, "--board", "stm32f746", "--platform", "cmake", "--output", "OUT/created"),
    "project.run": ("IN", *_BOARD),
    "vm.box": _NOWHERE,
    "vm.release": ("--output", "OUT/release", *_NOWHERE),
    "vm.run": ("true",),
    "vm.snapshot": (),
    "vm.status": (),
}
# Seconds until Ctrl-C, for commands that run until then.
_UNTIL_INTERRUPTED = {"board.serve": 20, "board.virtual": 20, "dashboard": 20, "farm.up": 20}
# Commands of the virtual machine are tested in tests/environment/machine/test_scarce_machine.py.
_NOT_HERE = {"test", "vm.test", "vm.up", "vm.destroy", "vm.halt"}
_OF_PACKAGES = ("docker.build", "env.archive", "vm.box", "vm.release")
# With these, a build would succeed, which takes minutes.
_WHOLE = ("an output that cannot be written", "no home", "a home that is not there")
_MOUNT_PACKAGES = f"""
(mkdir -p $CACHE/utvm/packages $CACHE/up $CACHE/work
 mount -t overlay none $CACHE/utvm/packages \\
  -o lowerdir={cache_root() / "packages"},upperdir=$CACHE/up,workdir=$CACHE/work) 2>/dev/null || true
"""
_CHIPS = ROOT / "tests" / "boards" / "targets.yaml"
# In CI, a command of each kind with its likeliest scarce resource.
_SAMPLE = {
    ("model.run", "64k of disk"),
    ("hil", "1m of disk"),
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
        for command, scarce in itertools.product(_COMMANDS, SCARCE)
    ]


@pytest.mark.nightly
def test_every_command_is_tried() -> None:
    assert _COMMANDS.keys() | _NOT_HERE == set(namespace.task_names)


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Firmware that can be flashed."""
    path: Path = tmp_path_factory.mktemp("elf") / "f.elf"
    np.save(path.with_name("x.npy"), np.zeros((1, 1, 8, 8), dtype=np.float32))
    words = ("--board", "stm32f746", "--output", path, "--input", path.with_name("x.npy"))
    assert inv("firmware.build", *_MODEL, *words).returncode == 0
    return path


@pytest.mark.skipif(not may_make_mounts(), reason="no mounts of one's own here (unshare --mount)")
@pytest.mark.parametrize(("command", "scarce"), _cases())
def test_scarcity_is_reported_in_one_line(
    command: str, scarce: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folders = create_folders(tmp_path)
    _write_inputs(folders["IN"])
    if command == "firmware.flash":
        shutil.copy(request.getfixturevalue("elf"), folders["IN"] / "f.elf")
    # Package files exist already; new files are on the scarce disk.
    before = _MOUNT_PACKAGES if command in _OF_PACKAGES and scarce not in _WHOLE else ""
    interrupt_after = _UNTIL_INTERRUPTED.get(command, 0)
    call((command, *_COMMANDS[command]), folders, SCARCE[scarce], before=before, interrupt_after=interrupt_after)


def _write_inputs(folder: Path) -> None:
    np.save(folder / "x.npy", np.zeros((1, 1, 8, 8), dtype=np.float32))
    (folder / "nightly.yaml").write_text("boards: [{board: host, suites: [health]}]")
    (folder / "lines.txt").write_text("finish\n")
    (folder / "bytes.txt").write_text(f"03{'00' * 15}\n")
    shutil.copy(_CHIPS, folder / "chip.yaml")
    (folder / "vta.bit").write_bytes(build_bitstream())
    (folder / "osv").mkdir()
    (folder / "osv" / "x.json").write_text("{}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("around", "message"),
    [
        # Without a reader of the output, the exit code must not be 1, that of a failed test.
        ("{} >/dev/full 2>&1 || echo $? >$OUT/code", ""),
        pytest.param("({} || echo $? >$OUT/code) 2>&1 | true", "", marks=pytest.mark.nightly),
        ("{} >&- 2>&- || echo $? >$OUT/code", ""),
        ("mkdir $OUT/gone; cd $OUT/gone; rmdir $OUT/gone; {} || echo $? >$OUT/code", "no longer exists"),
    ],
    ids=["full", "closed", "none", "nowhere"],
)
def test_closed_output_is_not_a_failed_test(around: str, message: str, tmp_path: Path) -> None:
    command = (
        f"{sys.executable} -m utvm hil --suite test_none.py" if message else f"{sys.executable} -m utvm board.list"
    )
    completed = subprocess.run(
        ["sh", "-c", around.format(command)],
        cwd=ROOT,
        # The default: output is buffered, and written at the end.
        env={**os.environ, "OUT": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    code = tmp_path / "code"
    assert (code.read_text().strip() if code.exists() else "0") in ("0", "3")
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a: " + "[" * 1500, "a: 2001-99-99", "a: !!float x", "a: !!timestamp x", "? {a: b}\n: c", "a: \0"]
)
def test_invalid_yaml_is_a_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "board.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"board\.yaml: is (not valid YAML|nested too deeply)"):
        load_yaml(tmp_path / "board.yaml", Record)
    with pytest.raises(Exception):  # noqa: B017  PyYAML raises different exceptions
        yaml.safe_load(text)


def test_no_file_handles_are_no_usage_error(tmp_path: Path) -> None:
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
def test_damaged_header_of_arrays_is_a_clear_error(tmp_path: Path, compressed: bool) -> None:
    content, choice, refused = _npy(compressed), random.Random(1), 0
    path = tmp_path / "x.npy"
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(choice.randrange(1, 4)):
            damaged[choice.randrange(len(damaged))] = choice.randrange(256)
        path.write_bytes(damaged)
        try:
            read_arrays(str(path))
        except ConfigError as error:
            assert str(path) in error.message
            refused += 1
    assert refused > 100


def test_array_larger_than_memory_is_a_clear_error(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    (tmp_path / "x.npy").write_bytes(header.getvalue())
    with pytest.raises(ConfigError, match=r"x\.npy"):
        read_arrays(str(tmp_path / "x.npy"))


def test_cache_changed_while_in_use_is_a_clear_error() -> None:
    missing = cache_root() / "firmware" / "ab" / "firmware.elf"
    error = explain_scarcity(FileNotFoundError(errno.ENOENT, "No such file or directory", str(missing)))
    assert error is not None
    assert (error.message, error.exit_code) == (f"{missing}: No such file or directory", ExitCode.INFRASTRUCTURE)
    assert "run again" in error.hint
    elsewhere = FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere/file")
    assert explain_scarcity(elsewhere) is None
