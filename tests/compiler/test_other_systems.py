# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for other systems: a model is compiled on macOS, and Windows is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import may_make_mounts
from utvm.paths import ROOT

# Without what Python and the C library lack on macOS. Packages with compiled parts are those of Linux.
_SITECUSTOMIZE = """
import os, socket, sys
for module, names in ((os, "memfd_create pidfd_open sched_getaffinity O_PATH O_TMPFILE"), (socket, "AF_NETLINK")):
    for name in names.split():
        delattr(module, name)
import ctypes, libusb_package, numpy, onnx, psutil, serial.tools.list_ports, sysconfig, tvm, usb.core
sysconfig.get_config_vars()
find = ctypes.CDLL.__getattr__
def find_but_prctl(library, name):
    if name == "prctl":
        raise AttributeError(name)
    return find(library, name)
ctypes.CDLL.__getattr__ = find_but_prctl
sys.platform = "darwin"
"""
_WITHOUT_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


@pytest.mark.slow
@pytest.mark.skipif(not may_make_mounts(), reason="only root may hide /proc")
def test_archive_is_the_same_as_here(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    command = [sys.executable, "-m", "utvm", "model.package", "--board", "stm32f746"]
    command += ["--model", str(ROOT / "models" / "digits" / "digits_int8.tflite"), "--output"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([*command, tmp_path / "here.tar"], env=environment, check=True, capture_output=True)
    environment |= {"PYTHONPATH": f"{tmp_path}:{ROOT}", "XDG_CACHE_HOME": str(tmp_path / "other-cache")}
    completed = subprocess.run(
        [*_WITHOUT_PROC, *command, tmp_path / "there.tar"], env=environment, check=False, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "there.tar").read_bytes() == (tmp_path / "here.tar").read_bytes()


def test_windows_is_refused_with_a_hint() -> None:
    code = "import sys; sys.platform = 'win32'; import utvm"
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert "ImportError: utvm needs Linux or macOS; on Windows, install it in WSL 2" in completed.stderr
