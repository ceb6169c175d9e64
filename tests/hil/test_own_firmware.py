# SPDX-License-Identifier: Apache-2.0
"""A foreign firmware project: its own Makefile and linker script, and none of our code."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from utvm import boards
from utvm.errors import ConfigError
from utvm.paths import ROOT
from utvm.session.application import read_elf

_MAKEFILE = """\
CFLAGS = -mcpu=cortex-m7 -mthumb -Os -g -ffreestanding -Wall -Wextra -Werror
build/app-$(BOARD).elf: main.c app-$(BOARD).ld
\tarm-none-eabi-gcc $(CFLAGS) -D$(BOARD) -nostdlib -T app-$(BOARD).ld -o $@ main.c
"""
# Flash and RAM; for QEMU, the RAM that a core starts from.
_SCRIPT = """\
MEMORY {{ rom (rx) : ORIGIN = {rom}, LENGTH = 64K  ram (rw) : ORIGIN = {ram}, LENGTH = 64K }}
ENTRY(start)
SECTIONS {{
  .isr_vector : {{ KEEP(*(.isr_vector)) }} > rom
  .text : {{ *(.text*) *(.rodata*) }} > rom
  .ARM.exidx : {{ *(.ARM.exidx*) }} > rom
  .data : {{ data_start = .; *(.data*) data_end = .; }} > ram AT > rom
  data_stored = LOADADDR(.data);
  .bss : {{ bss_start = .; *(.bss*) *(COMMON) bss_end = .; }} > ram
}}
"""
_BOARDS = {"stm32f746": ("0x08000000", "0x20010000"), "mps2": ("0x00000000", "0x20000000")}
_PROGRAM = """\
#include <stdint.h>
#define REGISTER(address) (*(volatile uint32_t *)(address))
extern uint32_t data_start[], data_end[], data_stored[], bss_start[], bss_end[];
uint32_t limit = 1000000;
volatile uint32_t events;
static void console_start(void) {
#ifdef stm32f746
  REGISTER(0x40023830) |= 1u << 3;   /* GPIOD */
  REGISTER(0x40023840) |= 1u << 18;  /* USART3 */
  REGISTER(0x40020C00) = 0xAu << 16; /* PD8, PD9 */
  REGISTER(0x40020C24) = 0x77u;
  REGISTER(0x4000480C) = 16000000u / 921600u;
  REGISTER(0x40004800) = 0xDu;
#else
  REGISTER(0x40004010) = 217u;
  REGISTER(0x40004008) = 3u;
#endif
}
static void say(const char *text) {
  for (; *text; text++) {
#ifdef stm32f746
    while (!(REGISTER(0x4000481C) & (1u << 7))) {}
    REGISTER(0x40004828) = (uint8_t)*text;
#else
    while (REGISTER(0x40004004) & 1u) {}
    REGISTER(0x40004000) = (uint8_t)*text;
#endif
  }
}
__attribute__((noinline)) void handle_event(uint32_t event) { events += event; }
void start(void) {
  uint32_t *from = data_stored, *to;
  for (to = data_start; to < data_end;) *to++ = *from++;
  for (to = bss_start; to < bss_end;) *to++ = 0;
  console_start();
  say("counter 1.4 ready\\r\\n");
  while (events < limit) handle_event(1);
  say("limit reached\\r\\n");
  for (;;) {}
}
__attribute__((section(".isr_vector"), used))
static const void *vectors[] = {(void *)(RAM_END), (void *)start};
"""
# The suite of the guide.
(_SUITE,) = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "own-project.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, built for both boards."""
    folder = tmp_path_factory.mktemp("counter")
    (folder / "Makefile").write_text(_MAKEFILE)
    (folder / "utvm.yaml").write_text("boards: [{board: stm32f746, kind: virtual}, {board: mps2-an500}]\n")
    (folder / "hil").mkdir()
    (folder / "build").mkdir()
    for board, (rom, ram) in _BOARDS.items():
        (folder / f"app-{board}.ld").write_text(_SCRIPT.format(rom=rom, ram=ram))
        (folder / "main.c").write_text(_PROGRAM.replace("RAM_END", hex(int(ram, 16) + 0x10000)))
        subprocess.run(["make", "-s", f"BOARD={board}"], cwd=folder, check=True, timeout=60)
    return folder


def _run(folder: Path, board: str, suite: str, *words: str) -> dict[str, Any]:
    """Run a suite in the project, and return its report."""
    (folder / "hil" / "test_counter.py").write_text(suite)
    inv("hil", *words, "--board", board, cwd=folder)
    report: dict[str, Any] = json.loads((folder / "build/reports/latest/report.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.parametrize(("board", "name"), [("stm32f746", "stm32f746"), ("mps2-an500", "mps2")])
def test_suite_of_under_thirty_lines_tests_it(counter: Path, board: str, name: str) -> None:
    assert len(_SUITE.splitlines()) < 30
    report = _run(counter, board, _SUITE.replace("app.elf", f"app-{name}.elf"))
    assert [test["message"] for test in report["tests"] if test["outcome"] != "passed"] == []
    assert len(report["tests"]) == 2
    assert report["board"]["id"] == board


_WRONG = """
def test_function_that_is_not_called(firmware, flash):
    flash(firmware.elf("build/app-stm32f746.elf")).run_to("vectors", timeout=0.2)

def test_text_that_is_not_printed(firmware, flash):
    app = flash(firmware.elf("build/app-stm32f746.elf"))
    app.run()
    app.expect("ready")
    app.expect("counter 2", timeout=0.1)

def test_core_that_locks_up(firmware, flash):
    app = flash(firmware.elf("build/app-stm32f746.elf"))
    app.connection.gdb.write_register("pc", 0xE0000000)  # no code there, and no vector for that fault
    app.run_to("handle_event", timeout=0.5)

def test_missing_symbol(firmware, flash):
    flash(firmware.elf("build/app-stm32f746.elf")).word("evnts")
"""


@pytest.mark.slow
def test_missing_behaviour_is_a_failure_with_its_location(counter: Path) -> None:
    report = _run(counter, "stm32f746", _WRONG)
    assert [test["outcome"] for test in report["tests"]] == ["failed", "failed", "failed", "infrastructure"]
    not_reached, not_printed, locked_up, no_symbol = (test["message"] for test in report["tests"])
    assert "did not reach vectors within 0.2 s; it is in" in not_reached
    assert "main.c:" in not_reached
    assert "did not reach handle_event: the core locked up" in locked_up
    assert "the console did not print b'counter 2' within 0.1 s" in not_printed
    # A fast computer also prints "limit reached" in that time.
    assert "\nlast console output:\ncounter 1.4 ready" in not_printed
    assert "app-stm32f746.elf has no symbol 'evnts'" in no_symbol


@pytest.mark.slow
def test_debugger_stops_at_a_function_and_reads_symbols(counter: Path) -> None:
    commands = ["break handle_event", "continue", "continue", "continue", "backtrace", "print events", "list"]
    words = [word for command in commands for word in ("--command", command)]
    elf = counter / "build" / "app-stm32f746.elf"
    completed = inv("board.gdb", "--elf", elf, "--board", "stm32f746", "--virtual", *words)
    assert completed.returncode == 0, completed.stderr
    source = (counter / "main.c").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "void handle_event" in text)
    assert re.search(rf"^#0  handle_event \(event=.*1\) at main\.c:{line}$", completed.stdout, re.MULTILINE)
    assert re.search(r"^#1  0x[0-9a-f]{8} in start \(\) at main\.c:\d+$", completed.stdout, re.MULTILINE)
    assert "$1 = 2\n" in completed.stdout  # two events before the third call
    assert f"{line}\t{source[line - 1]}\n" in completed.stdout
    console = re.search(r"console is written to (\S+)", completed.stdout)
    assert console and "counter 1.4 ready" in Path(console[1]).read_text()


def test_image_for_other_memory_is_refused_by_section(counter: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_elf(boards.load("mps2-an500"), counter / "build" / "app-stm32f746.elf")
    assert "app-stm32f746.elf: its .isr_vector, 8 bytes at 0x08000000" in caught.value.message
    assert "ssram1 0x00000000 to 0x00400000" in caught.value.hint


@pytest.mark.parametrize("content", [b"\x7fELF", b"\x7fELF" + bytes(99)])
def test_other_file_than_elf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "app.elf").write_bytes(content)
    with pytest.raises(ConfigError, match="not an ELF file"):
        read_elf(boards.load("stm32f746"), tmp_path / "app.elf")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_elf(boards.load("stm32f746"), tmp_path / "app.elf")


@pytest.mark.slow
def test_elf_is_flashed_and_monitored(counter: Path) -> None:
    elf = counter / "build" / "app-mps2.elf"
    completed = inv("firmware.flash", elf, "--board", "mps2-an500", "--monitor", "5", cwd=counter)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "ssram1:" in completed.stdout
    assert "counter 1.4 ready" in completed.stdout
    monitored = inv("board.monitor", "--board", "stm32f746", "--virtual", "--seconds", "0.1", cwd=counter)
    assert monitored.returncode == 0, monitored.stderr
    assert "each command starts a fresh, empty VIRTUAL board" in " ".join(monitored.stdout.split())
    assert inv("board.reset", "--board", "mps2-an500", cwd=counter).returncode == 0
    assert "has no debug port" in inv("board.monitor", "--board", "host", "--seconds", "1", cwd=counter).stderr
