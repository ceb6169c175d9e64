# SPDX-License-Identifier: Apache-2.0
"""Suites and files of other projects, of which UTVM_OUTSIDE has checkouts (docs/outside.md)."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utvm import boards
from utvm.boards.bitstream import read_bitstream
from utvm.probe.virtual import UsbProbe, start_virtual
from utvm.virtual.usb import host

pytestmark = pytest.mark.nightly
FOLDER = Path(os.environ.get("UTVM_OUTSIDE", "/nowhere"))
PYOCD = FOLDER / "pyOCD"
BITSTREAMS = sorted((FOLDER / "vta-distro" / "bitstreams" / "pynq").glob("*/*.bit"))
SITE = f"""
import os, runpy, libusb_package
backend = runpy.run_path({host.__file__!r})["Backend"](os.environ["PROBE"])
libusb_package.get_libusb1_backend = lambda: backend
"""
PROBE = "probes: {VIRTUAL-1: {target_override: nrf52840, test_binary: l1_nrf52840-dk.bin}}"


@pytest.mark.skipif(not (PYOCD / "test").is_dir(), reason="UTVM_OUTSIDE names no folder with pyOCD")
def test_pyocd_functional_tests_pass(tmp_path: Path) -> None:
    for folder in ("test", "src"):
        shutil.copytree(PYOCD / folder, tmp_path / folder)
    script = tmp_path / "test" / "gdb_test_script.py"
    script.write_text(script.read_text().replace('"wb"', '"w"'))  # it writes text, for a GDB with Python 2
    (tmp_path / "test" / "pyocd.yaml").write_text(PROBE)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    (tmp_path / "arm-none-eabi-gdb-py").symlink_to(str(shutil.which("gdb-multiarch")))
    plug = tmp_path / "usb"
    environment = os.environ | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PROBE": str(plug),
        "PYTHONPATH": str(tmp_path),
    }
    probe = UsbProbe("cmsis-dap", f"unix:{plug}")
    with start_virtual(boards.load("nrf52840dk"), tmp_path, usb=probe, serial="VIRTUAL-1"):
        command = [sys.executable, "automated_test.py", "--quiet"]
        done = subprocess.run(
            command, cwd=tmp_path / "test", env=environment, capture_output=True, text=True, check=False, timeout=900
        )
    results = dict(re.findall(r"^nrf52840 +(\w.*? Test) +(Pass|Fail)", done.stdout, re.MULTILINE))
    assert len(results) == 14
    assert set(results.values()) == {"Pass"}, results


@pytest.mark.skipif(not BITSTREAMS, reason="UTVM_OUTSIDE names no folder with vta-distro")
@pytest.mark.parametrize("path", BITSTREAMS, ids=[f"{path.parent.name}/{path.name}" for path in BITSTREAMS])
def test_published_bitstream_is_for_the_die(path: Path) -> None:
    logic = boards.load("pynq-z1").programmable
    assert logic
    assert read_bitstream(path, logic).part == "7z020clg484"
