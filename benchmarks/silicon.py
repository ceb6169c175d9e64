# SPDX-License-Identifier: Apache-2.0
"""Modelled cycles of programs whose time on silicon is published, built from their own code.

``silicon.yaml`` lists the programs. Their repositories are looked for in ``--sources`` (cloned there if missing),
and their code stays in a temporary folder. A program runs twice on the virtual board, and the second run counts.

Run: ``.venv/bin/python benchmarks/silicon.py --sources FOLDER [--only WORD]``. Ends with 1 if the errors exceed
the bounds.
"""

import argparse
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from elftools.elf.elffile import ELFFile

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from utvm import boards
from utvm.virtual.machine import BoardModel

CPUS = {
    "nucleo-l4r5zi": ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"],
    "nrf5340dk": ["-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16"],
}
BOUNDS = {"STM32L4R5ZI": (5.0, 10.0), "nRF5340": (10.0, 10.0)}  # median, worst
CMSIS = ("CMSIS/NN/Source", "CMSIS/NN/Include", "CMSIS/Core/Include")
_DHCSR, _DEBUG, _HALTED = 0xE000EDF0, 0xA05F0001, 1 << 17
_MAIN = """
#include <stdint.h>
#include <stddef.h>
#include "tvmgen_default.h"
volatile uint32_t cycles;
static uint8_t workspace[360000] __attribute__((aligned(16)));
static size_t used;
static uint8_t input[27648] __attribute__((aligned(16))), output[2560] __attribute__((aligned(16)));
void *TVMBackendAllocWorkspace(int type, int id, uint64_t bytes, int code, int bits) {
  void *const block = workspace + used;
  (void)type, (void)id, (void)code, (void)bits;
  used += (bytes + 15) & ~15u;
  return block;
}
int TVMBackendFreeWorkspace(int type, int id, void *block) {
  (void)type, (void)id;
  used = (uint8_t *)block - workspace;
  return 0;
}
#define WORD(address) (*(volatile uint32_t *)(address))
void start(void) {
  void *in = input, *out = output;
  WORD(0xE000ED88) |= 0x00F00000; /* CPACR */
  __asm volatile("dsb\\nisb");
  for (size_t i = 0; i < sizeof input; i++)
    input[i] = (uint8_t)(i * 2654435761u >> 24);
#if FLOATS
  for (size_t i = 0; i < 640; i++)
    ((float *)input)[i] = (float)(int)(i * 37 % 256) - 128;
#endif
  tvmgen_default_run((struct tvmgen_default_inputs *)&in, (struct tvmgen_default_outputs *)&out);
  WORD(0xE000EDFC) |= 1u << 24; /* DEMCR.TRCENA */
  WORD(0xE0001FB0) = 0xC5ACCE55; /* DWT_LAR */
  WORD(0xE0001000) |= 1;
  const uint32_t before = WORD(0xE0001004);
  tvmgen_default_run((struct tvmgen_default_inputs *)&in, (struct tvmgen_default_outputs *)&out);
  cycles = WORD(0xE0001004) - before;
  __asm volatile("bkpt #0");
}
__attribute__((section(".vectors"), used)) static const uint32_t vectors[] = {STACK, (uint32_t)start};
"""
_SCRIPT = """
MEMORY { flash (rx) : ORIGIN = %#x, LENGTH = 1M  ram (rw) : ORIGIN = 0x20002000, LENGTH = 484K }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > flash
  .ARM.exidx : { *(.ARM.exidx*) } > flash
  .data : { *(.data*) } > ram
  .bss : { *(.bss*) *(COMMON) end = .; } > ram
}
"""


def main() -> int:
    """Measure, write the figures, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    data = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program in data["programs"]:
            name = f"{program['variant']} {program['model']}"
            if options.only not in f"{program['board']} {name}":
                continue
            elf = build(program, data["repositories"], options.sources, Path(folder))
            published = round(program["clock_hz"] / program["a_second"])
            modelled, instructions = (count(elf, program["board"] + text) for text in (":cycles=model", ""))
            row = {
                "chip": program["chip"],
                "program": name,
                "source": "closed/OctoML, MLPerf Tiny 1.0",
                "clock_hz": program["clock_hz"],
                "published_cycles": published,
                "modelled_cycles": modelled,
                "instructions": instructions,
                "held": program.get("held", False),
            }
            error = 100 * (modelled / published - 1)
            print(f"{row['chip']:<12} {name:<24} {published:>12,} {modelled:>12,} {error:+6.1f} %", flush=True)
            rows.append(row)
    failed = [chip for chip in BOUNDS if not _is_within(chip, rows)]
    if not options.only:
        seen.keep("silicon", {"rows": rows})
    return 1 if failed else 0


def _is_within(chip: str, rows: list[dict[str, Any]]) -> bool:
    errors = [
        abs(100 * (row["modelled_cycles"] / row["published_cycles"] - 1)) for row in rows if row["chip"] == chip
    ]
    if not errors:
        return True
    median, worst = statistics.median(errors), max(errors)
    print(f"{chip}: median {median:.1f} %, worst {worst:.1f} %; bounds {BOUNDS[chip][0]} and {BOUNDS[chip][1]} %")
    return median <= BOUNDS[chip][0] and worst <= BOUNDS[chip][1]


def build(program: Mapping[str, Any], repositories: Mapping[str, Any], sources: Path, folder: Path) -> Path:
    """Build a program for its virtual board and return the ELF file."""
    board = {"nucleo-l4r5zi": "NUCLEO_L4R5ZI", "nrf5340dk": "NRF5340DK"}[program["board"]]
    code = f"closed/OctoML/code/{program['variant']}/{board}/{program['model']}"
    files = _extract(repositories, sources, "tiny_results_v1.0", folder, code)
    cmsis = _extract(repositories, sources, "CMSIS_5", folder, *CMSIS)
    output = folder / f"{program['variant']}-{program['board']}-{program['model']}"
    output.mkdir()
    flash = boards.load(program["board"]).region("flash").address
    (output / "main.c").write_text(_MAIN)
    (output / "script.ld").write_text(_SCRIPT % flash)
    model = files / code
    inputs = [output / "main.c", *sorted(model.glob("model/codegen/host/src/*.c"))]
    if program["variant"].endswith("cmsis_nn"):
        inputs += sorted((cmsis / CMSIS[0]).rglob("*.c"))
    flags = [
        *CPUS[program["board"]],
        "-mthumb",
        "-mfloat-abi=hard",
        "-O2",
        "-ffunction-sections",
        "-fdata-sections",
    ]
    includes = [
        model / "include",
        model / "model/codegen/host/include",
        model / "crt/include",
        model / "crt_config",
    ]
    includes += [cmsis / path for path in CMSIS[1:]]
    command = [
        "arm-none-eabi-gcc",
        *flags,
        "-w",
        f"-DFLOATS={int(program['model'] == 'ad')}",
        "-DSTACK=0x2007F000",
    ]
    command += [*(f"-I{path}" for path in includes), "-nostartfiles", "-Wl,--gc-sections", "-Wl,-estart"]
    command += ["-Wl,-u,vectors", f"-T{output / 'script.ld'}", "-o", output / "program.elf", *inputs, "-lm"]
    subprocess.run(command, check=True)
    return output / "program.elf"


def _extract(repositories: Mapping[str, Any], sources: Path, name: str, folder: Path, *paths: str) -> Path:
    """Return a folder with files of a repository at its commit."""
    repository, target = sources / name, folder / name
    if not repository.exists():
        subprocess.run(["git", "clone", "--filter=blob:none", repositories[name]["url"], repository], check=True)
    if not (target / paths[0]).exists():
        target.mkdir(exist_ok=True)
        commit = repositories[name]["commit"]
        archive = subprocess.run(
            ["git", "-C", repository, "archive", commit, *paths], check=True, capture_output=True
        )
        subprocess.run(["tar", "x", "-C", target], input=archive.stdout, check=True)
    return target


def count(elf: Path, board: str) -> int:
    """Run a program on a virtual board and return what it counted."""
    machine = BoardModel(boards.load(board).machine_spec())
    try:
        with elf.open("rb") as file:
            parsed = ELFFile(file)
            for address, content in _segments(parsed):
                memory = machine._bus.memory_at(address)
                assert memory is not None
                memory.bytes[address - memory.start : address - memory.start + len(content)] = content
            (symbol,) = parsed.get_section_by_name(".symtab").get_symbol_by_name("cycles")
        machine.write(_DHCSR, struct.pack("<I", _DEBUG))
        machine.hold_reset()
        machine.release_reset()
        machine.start()
        while not struct.unpack("<I", machine.read(_DHCSR, 4))[0] & _HALTED:
            time.sleep(0.2)
        return int(struct.unpack("<I", machine.read(symbol["st_value"], 4))[0])
    finally:
        machine.close()


def _segments(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD":
            yield segment["p_vaddr"], segment.data().ljust(segment["p_memsz"], b"\0")


if __name__ == "__main__":
    sys.exit(main())
