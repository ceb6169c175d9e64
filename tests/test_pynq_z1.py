# SPDX-License-Identifier: Apache-2.0
"""The board pynq-z1: its memory setting, a start in RAM, the Cortex-A9's setup, and OpenOCD's scripts."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hil_tests.programs import handwritten
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import Library
from utvm.drivers import attach
from utvm.errors import BoardError, ConfigError, DoesNotFitError, ProbeError
from utvm.probe import choice
from utvm.probe import usb as usb_module
from utvm.probe.openocd import OpenOcd
from utvm.probe.usb import Detection, Probe, serial_ports
from utvm.probe.virtual import start_virtual
from utvm.session import DeviceFault, HostDriven

_NAME = "pynq-z1"
_OCM_CFG = 0xF8000910
_DUMMY = "set PYNQ_Z1_INTERFACE interface/dummy.cfg"


def _variant(folder: Path, change: Callable[[dict[str, Any]], None], settings: str = "") -> Board:
    """Return the board with some of its data changed."""
    target = folder / _NAME
    shutil.copytree(boards.load(_NAME).directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    change(content)
    (target / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return boards.load(f"{target}{settings}")


def test_on_chip_memory_is_the_default() -> None:
    default, ddr = boards.load(_NAME), boards.load(f"{_NAME}:memory=ddr")
    assert (default.settings, ddr.settings) == ({"memory": "ocm"}, {"memory": "ddr"})
    assert (default.full_name, ddr.full_name) == ("pynq-z1:memory=ocm", "pynq-z1:memory=ddr")
    # UG585, 29.4: 256 KiB, up to the end of the address space; table 4-1: DDR from 0; the board has 512 MiB.
    assert default.region("ocm").end == 1 << 32
    assert sum(region.size for region in default.memory) == 256 * 1024
    assert min(region.address for region in ddr.memory) == 0x0010_0000
    assert ddr.region("ddr").end == 512 * 1024 * 1024
    assert boards.load(default.full_name) == default


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("pynq-z1:memory=flash", "pynq-z1: memory cannot be 'flash'", "it can be: ocm, ddr"),
        ("pynq-z1:colour=red", "pynq-z1 has no setting 'colour'", "it has: memory"),
        ("stm32f746:memory=ddr", "stm32f746 has no setting 'memory'", "it has: none"),
        ("host:memory=ddr", "host has no setting 'memory'", "it has: none"),
        ("pynq-z1:memory=", "'memory=' is not a setting", "NAME=VALUE"),
        ("pynq-z1:memory=ocm,memory=ddr", "'memory=ddr' is not a setting", "NAME=VALUE"),
    ],
)
def test_unknown_setting_is_refused(name: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        boards.load(name)
    assert hint in caught.value.hint


def test_capabilities_depend_on_the_kind() -> None:
    board = boards.load(_NAME)
    assert board.kinds == ("virtual", "physical")
    common = {"accelerator vta", "bus errors", "console", "counter", "debug port", "execute never", "room"}
    common |= {"OpenOCD", "access widths", "write errors"}
    assert board.capabilities_of("virtual") == common
    assert board.capabilities_of("physical") == {*common, "watchpoints"}


@pytest.mark.slow
def test_model_that_does_not_fit_names_the_free_memory() -> None:
    large = handwritten("large", "  y[0] = arena[x[0]];\n  return 0;", arena_bytes=256 * 1024)
    with pytest.raises(DoesNotFitError, match="region ocm of pynq-z1:memory=ocm has 253952 bytes") as caught:
        firmware.build(boards.load(_NAME), [large])
    assert caught.value.hint == "--board pynq-z1:memory=ddr has 522240 KiB there instead of 248"
    assert firmware.build(boards.load(f"{_NAME}:memory=ddr"), [large]).elf.is_file()


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["jtag", "qemu"])
@pytest.mark.parametrize("memory", ["ocm", pytest.param("ddr", marks=pytest.mark.nightly)])
def test_every_reset_starts_a_complete_image(memory: str, driver: str, doubler: Library, tmp_path: Path) -> None:
    """If OCM is not mapped, it is as after power-on: as in UG585, B.28, or as in QEMU."""
    board = boards.load(f"{_NAME}:memory={memory},driver={driver}")
    description = {"jtag": "a software model, with", "qemu": "emulated by QEMU (xilinx-zynq-a9), with"}[driver]
    image = firmware.build(board, [doubler])
    code = board.region(board.layout.code)
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        assert f"{board.full_name}: VIRTUAL board, {description} a model of vta" in connection.describe()
        connection.program(image)
        for _ in range(2):
            # As the boot ROM does on the chip.
            connection.write_memory(code.address, bytes(256))
            connection.reset(halt=True)
            assert connection.gdb.read_register("pc") == image.symbols["utvm_reset"]
            assert connection.first_difference(image) is None
            mapped = int.from_bytes(connection.read_memory(_OCM_CFG, 4), "little")
            assert mapped == (0x1F if memory == "ocm" else 0x18 if driver == "jtag" else 0)
        with HostDriven(connection, image) as session:
            for _ in range(2):
                (output,) = session.run("doubler", [np.array([1, 2, 3, 4], np.int32)]).outputs
                assert output.tolist() == [2, 4, 6, 8]


@pytest.mark.slow
def test_memory_not_ready_is_an_error_before_writing(doubler: Library, tmp_path: Path) -> None:
    """The check is the chip's; a register of QEMU that reads as not ready replaces the controller's."""

    def change(content: dict[str, Any]) -> None:
        (check,) = content["settings"]["memory"]["ddr"]["start"]["prepare"]
        check.update(address=_OCM_CFG, emulated=True)

    board = _variant(tmp_path, change, ":memory=ddr,driver=qemu")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        with pytest.raises(BoardError, match="is not ready: 0xf8000910 holds 0x0") as caught:
            connection.program(firmware.build(board, [doubler]))
        assert "DDR memory is not set up: set jumper JP4" in caught.value.hint
        assert connection.read_memory(board.region("ddr").address, 64) == bytes(64)


_BITS = """  union { int32_t word; float number; } a, b, product;
  uint32_t control;
  a.word = x[0];
  b.word = x[1];
  product.number = a.number * b.number;
  y[0] = product.word;
  __asm__ volatile("mrc p15, 0, %0, c1, c0, 0" : "=r"(control));
  y[1] = (int32_t)(control & 0x1805u);
  y[2] = *(volatile int32_t *)((char *)x + 1);
  return 0;"""


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["jtag", "qemu"])
def test_core_is_set_up_as_the_port_defines(driver: str, tmp_path: Path) -> None:
    """Small floats as in IEEE 754, caches and memory management on, a word at any address."""
    board = boards.load(f"{_NAME}:driver={driver}")
    program = handwritten("bits", _BITS)
    null = handwritten("null", "  *(volatile int32_t *)(uintptr_t)x[0] = 1;\n  return 0;")
    small = np.array([1.5e-30, 3e-12], np.float32)
    words = np.array([*small.view(np.int32), 0x11223344, 0], np.int32)
    with (
        attach(board, "virtual", log_directory=tmp_path) as connection,
        HostDriven(connection, firmware.build(board, [program, null])) as session,
    ):
        (output,) = session.run("bits", [words]).outputs
        product = small[0] * small[1]
        assert 0 < product < np.finfo(np.float32).smallest_normal
        assert output[0] == product.view(np.int32)
        assert output[1] == 0x1805  # ARM DDI 0406C, B4.1.130: I, Z, C, M
        assert output[2].tobytes() == words.tobytes()[1:5]
        with pytest.raises(DeviceFault) as caught:
            session.run("null", [np.zeros(4, np.int32)])
        meaning = caught.value.record.meaning
        assert (meaning.name, meaning.address) == ("data abort", 0)
        assert "on a write" in meaning.flags
        assert caught.value.source_line.startswith("null_run at")


# OpenOCD's scripts: OpenOCD reads them, and continues as far as possible without an adapter.


def test_openocd_reads_the_scripts_and_lacks_only_the_probe(tmp_path: Path) -> None:
    board = boards.load(_NAME)
    log = tmp_path / "openocd.log"
    with (
        pytest.raises(ProbeError) as caught,
        OpenOcd(board.openocd_config, commands=["adapter serial 003017A4C8B0"], log=log),
    ):
        pass
    assert "unable to open ftdi device with vid 0403, pid 6010" in log.read_text()
    assert "serial '003017A4C8B0'" in log.read_text()
    assert "no probe is plugged in" in caught.value.hint


def test_adapter_without_a_board_has_an_empty_chain(tmp_path: Path) -> None:
    board = boards.load(_NAME)
    (tmp_path / "openocd.cfg").write_text(f"{_DUMMY}\nsource {board.openocd_config}\n")
    log = tmp_path / "openocd.log"
    with pytest.raises(ProbeError) as caught, OpenOcd(tmp_path / "openocd.cfg", log=log):
        pass
    assert "zynq_pl.bs: IR capture error" in log.read_text()
    assert "the board's JTAG chain is not there" in caught.value.hint


def test_scripts_configure_reset_and_target() -> None:
    config = boards.load(_NAME).openocd_config
    commands = "echo [reset_config]; echo [target current]; echo [zynq.cpu0 cget -event gdb-attach]; shutdown"
    completed = subprocess.run(
        ["openocd", "-c", _DUMMY, "-f", config, "-c", commands], capture_output=True, text=True, timeout=20, check=False
    )
    assert "srst_only" in completed.stderr
    assert "connect_deassert_srst" in completed.stderr
    assert "zynq.cpu0\n" in completed.stderr
    assert "halt 500" in completed.stderr


@pytest.mark.slow
def test_second_core_stays_halted(doubler: Library, tmp_path: Path) -> None:
    """A running second core would execute code in the image's memory."""
    board = boards.load(f"{_NAME}:memory=ddr")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        connection.program(firmware.build(board, [doubler]))
        connection.gdb.resume()
        states = [line.split()[-1] for line in connection.gdb.monitor("targets").splitlines() if "zynq.cpu" in line]
    assert states == ["running", "halted"]


@pytest.mark.slow
def test_probe_of_another_board_is_refused(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The USB bus is a fake, and a virtual STM32F746 is at the probe's other end."""
    probe = Probe("ftdi", 0x0403, 0x6010, "003017A4C8B0", "1-2.1", 1, 7, "Digilent", False, "")
    monkeypatch.setattr(choice, "detect", lambda known: Detection((probe,), ""))
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = board.model.probe.format(port=chip.health_match["stlink"])
        pynq = _variant(tmp_path, lambda content: content["physical"].update(select_serial=select))
        shutil.copy(board.openocd_config, pynq.openocd_config)
        with (
            pytest.raises(BoardError, match="probe 003017A4C8B0 is not pynq-z1: PSS_IDCODE cannot be read") as caught,
            attach(pynq, "auto", log_directory=tmp_path),
        ):
            pass
        assert "--serial" in caught.value.hint


@dataclass(frozen=True)
class _Port:
    """A serial device, as in pyserial's list."""

    device: str
    serial_number: str
    location: str | None


def test_serial_line_is_the_probes_second_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """An FT2232H is two serial devices to Linux, and the first one is JTAG."""
    ports = [
        _Port("/dev/ttyUSB0", "SOMEBODY", "1-1:1.1"),
        _Port("/dev/ttyUSB1", "003017A4C8B0", "1-2.1:1.0"),
        _Port("/dev/ttyUSB2", "003017A4C8B0", "1-2.1:1.1"),
    ]
    monkeypatch.setattr(usb_module.list_ports, "comports", lambda: ports)
    physical = boards.load(_NAME).physical
    assert physical is not None
    assert serial_ports("003017A4C8B0", physical.console_interface) == ("/dev/ttyUSB2",)
    assert serial_ports("003017A4C8B0") == ("/dev/ttyUSB1", "/dev/ttyUSB2")
    assert serial_ports("NOBODY", 1) == ()


def test_missing_probe_is_an_error_only_for_physical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.load(_NAME)
    monkeypatch.setattr(choice, "detect", lambda known: Detection((), "no USB here"))
    with pytest.raises(ProbeError, match="there is no probe for pynq-z1: no USB here"):
        choice.find_probe(board, "physical", "")
    assert choice.find_probe(board, "auto", "") is None
