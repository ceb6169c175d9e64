# SPDX-License-Identifier: Apache-2.0
"""Compares modelled cycles with the published times on silicon of programs, built from their own code.

``silicon.yaml`` lists the programs. Their repositories are looked for in ``--sources`` (cloned there if missing), and
their code stays in a temporary folder. A program runs twice on the virtual board, and the second run counts.

Run: ``.venv/bin/python benchmarks/silicon.py --sources FOLDER [--only WORD]``; others keep their figures. Ends with 1
if the errors exceed the bounds.
"""

import argparse
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from elftools.elf.elffile import ELFFile

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from benchmarks.silicon_programs import COREMARK, EMBENCH, LAYER, LAYERS, LOOP, MAIN, MICROTVM, ONNC, PQM4, SCRIPT
from utvm import boards
from utvm.virtual.cortex_m.cycles import qemu_plugin
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import CacheSpec, MachineSpec

CPUS = {
    "nucleo-l4r5zi": ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"],
    "nrf5340dk": ["-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16"],
    "stm32f746": ["-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16"],
}
CORES = {"cortex-m4": CPUS["nucleo-l4r5zi"]}  # with a floating-point unit, of chips that no board has
EMULATED = "mps3-an547"  # by QEMU, for a Cortex-M55
BARE = "nucleo-l4r5zi"  # lends its memory map to a core alone
_COREMARK_FILES = ("core_list_join.c", "core_matrix.c", "core_state.c", "core_util.c", "coremark.h", "barebones")
RAM = {"stm32f746": (0x20010000, 0x20010000)}  # of data, and the top of the stack; others have one piece
BOUNDS = {  # of rows whose chip and program match: median, worst, and the part that is within 10 %
    "Cortex-M0 to M4": ("STM32L4R5ZI|STM32F407|Cortex-M4", 5.0, 10.0, 0.0),
    "Cortex-M33": ("nRF5340|Cortex-M33", 10.0, 10.0, 0.0),
    "Cortex-M7, a layer or CoreMark": ("STM32F746.*(conv|pool|CoreMark)|i.MX", 15.0, 15.0, 0.0),
    "Cortex-M7, a network": ("STM32F746.*CIFAR", 5.0, 5.0, 0.0),
    "all": ("", 6.0, 20.0, 0.8),
}
CMSIS = ("CMSIS/NN/Source", "CMSIS/NN/Include", "CMSIS/Core/Include")
_UNLIKE = {"": "", "flash": "flash not modelled"}
PAGE = Path(__file__).parent.parent / "docs" / "time.md"
PICTURE = PAGE.parent / "img" / "silicon.svg"
_DHCSR, _DEBUG, _HALTED = 0xE000EDF0, 0xA05F0001, 1 << 17


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
            if options.only not in f"{program.get('board', program['chip'])} {name}":
                continue
            elf = build(program, data["repositories"], options.sources, Path(folder))
            published = round(program["clock_hz"] / program["a_second"])
            row = {
                "chip": program["chip"],
                "program": name,
                "source": program.get("source", "MLPerf Tiny 1.0, closed/OctoML"),
                "clock_hz": program["clock_hz"],
                "published_cycles": published,
                "modelled_cycles": count(program, elf),
                "held": program.get("held", False),
            }
            counts = f"{published:>12,} {row['modelled_cycles']:>12,}"
            print(f"{row['chip']:<12} {name:<24} {counts} {error_of(row):+6.1f} %", flush=True)
            rows.append(row)
    earlier = {(row["chip"], row["program"]): row for row in _stored_rows()}
    new = {(row["chip"], row["program"]): row for row in rows}
    rows = list({**earlier, **new}.values())
    known, rows = {(row["chip"], row["program"]): row for row in rows}, []
    for program in data["programs"]:
        if row := known.get((program["chip"], f"{program['variant']} {program['model']}")):
            rows.append({**row, "unlike": program.get("unlike", "")})
    failed = [name for name in BOUNDS if not is_within(name, rows)]
    seen.keep("silicon", {"rows": rows})
    write_page(rows)
    return 1 if failed else 0


def _stored_rows() -> list[dict[str, Any]]:
    path = seen.FOLDER / "silicon.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["figures"]["rows"]) if path.exists() else []


def error_of(row: Mapping[str, Any]) -> float:
    """Return the model's error in percent."""
    return float(100 * (row["modelled_cycles"] / row["published_cycles"] - 1))


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/time.md."""
    lines = ["| chip, clock | program | published, M cycles | modelled | error | |", "|---|---|---|---|---|---|"]
    for row in rows:
        values = (row[name] for name in ("published_cycles", "modelled_cycles"))
        counts = " | ".join(f"{value / 1e6:.{3 if value > 10000 else 6}f}" for value in values)
        use = ", ".join(filter(None, ("check alone" if row["held"] else "", _UNLIKE[row["unlike"]])))
        clock = f"{row['clock_hz'] / 1e6:g} MHz"
        lines.append(f"| {row['chip']}, {clock} | {row['program']} | {counts} | {error_of(row):+.1f} % | {use} |")
    return "\n".join(lines) + "\n"


def write_page(rows: list[dict[str, Any]]) -> None:
    """Write the picture, and the table of docs/time.md."""
    PICTURE.write_text(picture_of(rows), encoding="utf-8")
    text = re.sub(r"(?m)^\| chip, clock(.*\n)+?(?=\n)", lambda _: table_of(rows), PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")


def picture_of(rows: list[dict[str, Any]]) -> str:
    """Return the errors of rows that are not unlike as an SVG: bars to both sides of zero, 10 pixels a percent."""
    rows = [row for row in rows if not row["unlike"]]
    height, zero = 22 * len(rows) + 30, 480
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="#fff"/>')
    for percent in (-20, -10, 0, 10, 20, 30):
        x = zero + 10 * percent
        parts.append(f'<path d="M{x} 0V{height - 24}" stroke="#ccc"/>')
        parts.append(f'<text x="{x}" y="{height - 8}" font-size="12" text-anchor="middle">{percent:+} %</text>')
    for number, row in enumerate(rows):
        y, error = 22 * number + 4, error_of(row)
        left, colour = zero + min(0.0, 10 * error), "#36c" if row["held"] else "#8ac"
        parts.append(f'<text x="4" y="{y + 12}" font-size="12">{row["chip"]}: {row["program"]}</text>')
        parts.append(f'<rect x="{left:.1f}" y="{y}" width="{abs(10 * error):.1f}" height="16" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def is_within(name: str, rows: list[dict[str, Any]]) -> bool:
    """Print the errors of a group of rows, and return whether its bounds are kept."""
    pattern, *bounds = BOUNDS[name]
    selected = [row for row in rows if re.match(pattern, f"{row['chip']} {row['program']}")]
    results = []
    for title, group in (("", [row for row in selected if not row["unlike"]]), (", unlike rows too", selected)):
        errors = [abs(error_of(row)) for row in group]
        median, worst = statistics.median(errors), max(errors)
        near = sum(error <= 10 for error in errors) / len(errors)
        print(f"{name}{title}: {len(errors)} rows, median {median:.1f} %, worst {worst:.1f} %, {near:.0%} within 10 %")
        results.append(median <= bounds[0] and worst <= bounds[1] and near >= bounds[2])
    print(f"  bounds {bounds[0]} %, {bounds[1]} % and {bounds[2]:.0%}, without unlike rows:", results[0])
    return results[0]


def build(program: Mapping[str, Any], repositories: Mapping[str, Any], sources: Path, folder: Path) -> Path:
    """Build a program for its virtual board and return the ELF file."""
    if program["variant"] in ("CoreMark", "Embench 2.0", "loop", "pqm4"):
        return build_bare(program, repositories, sources, folder)
    base_board = program.get("board", BARE)
    board = {"nucleo-l4r5zi": "NUCLEO_L4R5ZI", "nrf5340dk": "NRF5340DK"}.get(base_board, "")
    code = f"closed/OctoML/code/{program['variant']}/{board}/{program['model']}"
    output = folder / f"{program['variant']}-{program['chip']}-{program['model']}".replace(" ", "-")
    output.mkdir()
    flags = [
        *(CORES[program["core"]] if "core" in program else CPUS[program["board"]]),
        "-mthumb",
        "-mfloat-abi=hard",
        "-O2",
        "-ffunction-sections",
        "-fdata-sections",
    ]
    if program["variant"] == "ONNC":
        code = f"closed/Nuvoton/code/NUMAKER_M467HJ-zephyr/{program['model']}"
        results = _extract(repositories, sources, "tiny_results_v1.1", folder, "closed/Nuvoton/code")
        cmsis = _extract(repositories, sources, "CMSIS_5_9", folder, *CMSIS, "CMSIS/DSP/Include")
        fixed = results / "closed/Nuvoton/code/arm_convolve_HWC_q7_fast_nonsquare.fixed"
        convolutions = cmsis / CMSIS[0] / "ConvolutionFunctions"
        (convolutions / "arm_convolve_HWC_q7_fast_nonsquare.c").write_bytes(fixed.read_bytes())
        run, inputs = ONNC, [*(results / code).glob("*_code/*.cpp"), *sorted((cmsis / CMSIS[0]).rglob("*.c"))]
        includes = [results / code, *(results / code).glob("*_code")]
        includes += [cmsis / path for path in (*CMSIS[1:], "CMSIS/DSP/Include", "CMSIS/DSP/Include/dsp")]
        flags += ["-fno-exceptions", "-fno-rtti", "--specs=nosys.specs"]
    elif program["model"] in LAYERS:
        cmsis = _extract(
            repositories, sources, "CMSIS_5_3", folder, "CMSIS/NN", "CMSIS/DSP/Include", "CMSIS/Core/Include"
        )
        layer = re.sub(r"\b(in|out)\b", r"(q7_t *)\1put", LAYERS[program["model"]])
        run, inputs = LAYER % layer, sorted((cmsis / "CMSIS/NN/Source").rglob("*.c"))
        includes = [cmsis / path for path in ("CMSIS/NN/Include", "CMSIS/DSP/Include", "CMSIS/Core/Include")]
        flags += ["-DARM_MATH_CM7", "-D__FPU_PRESENT=1", "-O3"]  # the paper does not name the compiler
    else:
        model = _extract(repositories, sources, "tiny_results_v1.0", folder, code) / code
        cmsis = _extract(repositories, sources, "CMSIS_5", folder, *CMSIS)
        run, inputs = MICROTVM, sorted(model.glob("model/codegen/host/src/*.c"))
        if program["variant"].endswith("cmsis_nn"):
            inputs += sorted((cmsis / CMSIS[0]).rglob("*.c"))
        includes = [model / path for path in ("include", "model/codegen/host/include", "crt/include", "crt_config")]
        includes += [cmsis / path for path in CMSIS[1:]]
    (output / "main.c").write_text(MAIN % run)
    ram, stack = RAM.get(base_board, (0x20002000, 0x2007F000))
    (output / "script.ld").write_text(SCRIPT % (boards.load(base_board).region("flash").address, ram))
    command = ["arm-none-eabi-gcc", *flags, "-w", f"-DFLOATS={int(program['model'] == 'ad')}"]
    command += [f"-DSTACK={stack:#x}"]
    command += [*(f"-I{path}" for path in includes), "-nostartfiles", "-Wl,--gc-sections", "-Wl,-estart"]
    command += [f"-T{output / 'script.ld'}", "-o", output / "program.elf", output / "main.c", *inputs, "-lm"]
    subprocess.run(command, check=True)
    return output / "program.elf"


def build_bare(program: Mapping[str, Any], repositories: Mapping[str, Any], sources: Path, folder: Path) -> Path:
    """Build CoreMark, or a loop of a manual, for a core whose memory has no wait states."""
    output = folder / f"{program['chip']}-{program['model']}".replace(" ", "-").replace("/", "-")
    output.mkdir()
    run, inputs = LOOP % program.get("loop", ""), []
    unit = [*CPUS[BARE][1:], "-mfloat-abi=hard"] if program["variant"] == "pqm4" else ["-mfloat-abi=soft"]
    flags = ["-mthumb", f"-mcpu={program['core']}", *unit, *program.get("flags", "-O2").split()]
    if program["variant"] == "CoreMark":
        mark = _extract(repositories, sources, "coremark", folder, "core_main.c", *_COREMARK_FILES)
        run, inputs = COREMARK, sorted(mark.glob("core_*.c"))
        flags += [f"-I{mark}", f"-I{mark / 'barebones'}", "-include", "stddef.h", "-Dmain=coremark"]
        flags += ["-DITERATIONS=5", "-DPERFORMANCE_RUN=1", '-DFLAGS_STR=""', "-DMAIN_HAS_NOARGC=1", "-DHAS_PRINTF=0"]
    if program["variant"] == "Embench 2.0":
        embench = _extract(repositories, sources, "embench", folder, "src", "support")
        folder_of_program = embench / "src" / program["model"]
        run, inputs = EMBENCH, [*sorted(folder_of_program.glob("*.c")), embench / "support/beebsc.c"]
        flags += [
            "-DGLOBAL_SCALE_FACTOR=1",
            f"-I{embench / 'support'}",
            f"-I{folder_of_program}",
            "-ffunction-sections",
        ]
        flags += ["-fdata-sections", "-Wl,--gc-sections", "--specs=nosys.specs"]
        inputs += build_newlib(repositories, sources, folder, flags)
    if program["variant"] == "pqm4":
        scheme, operation = program["model"].split()
        kind = "kem" if "kem" in scheme else "sign"
        paths = [f"crypto_{kind}/{folder}" for folder in program["folders"]]
        pqm4 = _extract(repositories, sources, "pqm4", folder, *paths, "common/keccakf1600.S")
        mupq = _extract(repositories, sources, "mupq", folder, "common")
        own = pqm4 / paths[0]
        run = PQM4.replace("OPERATION", operation)
        (output / "randombytes.h").write_text("void randombytes(unsigned char *, unsigned);\n")
        inputs = [*sorted(own.glob("*.[cSs]")), pqm4 / "common/keccakf1600.S", mupq / "common/fips202.c"]
        flags += [*(f"-I{path}" for path in (output, own, mupq / "common")), "--specs=nosys.specs"]
    emulated = program["core"] == "cortex-m55"
    if emulated:
        flags += ["-DCYCCNT=0xDFFFFFFC", "-DSEMIHOSTING=1"]
    base_board = program.get("board", BARE)
    code, (ram, stack) = boards.load(base_board).region("flash").address, RAM.get(base_board, (0x20002000, 0x2007F000))
    (output / "main.c").write_text(MAIN % run)
    (output / "script.ld").write_text(SCRIPT % (0 if emulated else code, ram))
    command = ["arm-none-eabi-gcc", *flags, "-w", "-DFLOATS=0", f"-DSTACK={stack:#x}", "-nostartfiles", "-Wl,-estart"]
    command += [f"-T{output / 'script.ld'}", "-o", output / "program.elf", output / "main.c", *inputs, "-lm"]
    subprocess.run(command, check=True)
    return output / "program.elf"


def build_newlib(repositories: Mapping[str, Any], sources: Path, folder: Path, flags: Sequence[str]) -> list[Path]:
    """Build the functions of newlib that have a small form where it is built for size, and return their objects."""
    paths = ("libc/string", "libc/machine/arm", "libc/ctype/local.h", "libc/locale/setlocale.h")
    source = _extract(
        repositories, sources, "newlib", folder, *(f"newlib/{path}" for path in paths), "include/arm-acle-compat.h"
    )
    libc, output = source / "newlib" / "libc", folder / "small"
    names = [f"string/{name}.c" for name in ("memset", "memcpy", "memmove", "memcmp")]
    names += [f"machine/arm/{name}" for name in ("strlen-stub.c", "strlen.S", "strcmp.S")]
    if not output.exists():
        output.mkdir()
        includes = [f"-I{path}" for path in (libc / "string", libc / "machine/arm", source / "include")]
        command = ["arm-none-eabi-gcc", *flags, "-Os", "-w", *includes, "-c", *(libc / name for name in names)]
        subprocess.run(command, check=True, cwd=output)
    return sorted(output.glob("*.o"))


def _extract(repositories: Mapping[str, Any], sources: Path, name: str, folder: Path, *paths: str) -> Path:
    """Return a folder with files of a repository at its commit."""
    repository, target = sources / repositories[name].get("folder", name), folder / name
    if not repository.exists():
        subprocess.run(["git", "clone", "--filter=blob:none", repositories[name]["url"], repository], check=True)
    if not (target / paths[0]).exists():
        target.mkdir(exist_ok=True)
        commit = repositories[name]["commit"]
        archive = subprocess.run(["git", "-C", repository, "archive", commit, *paths], check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", target], input=archive.stdout, check=True)
    return target


def count(program: Mapping[str, Any], elf: Path) -> int:
    """Run a program on its virtual board, or on a core alone, and return its cycles."""
    if program.get("core") == "cortex-m55":
        return count_in_qemu(elf)
    spec = boards.load(f"{program.get('board', BARE)}:cycles=model").machine_spec()
    if "core" in program and "board" not in program and spec.timing:
        none = CacheSpec(lines=1, ways=1, line=32, wait=0)
        timing = spec.timing.model_copy(update={"code": none, "data": none})
        spec = spec.model_copy(update={"cpu": program["core"], "timing": timing})
    if "data" in program and spec.timing:
        timing = spec.timing.model_copy(update={"data": CacheSpec(**program["data"])})
        spec = spec.model_copy(update={"timing": timing})
    return count_cycles(elf, spec)


def count_cycles(elf: Path, spec: MachineSpec) -> int:
    """Run a program on a virtual board and return its cycles."""
    machine = BoardModel(spec)
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


def count_in_qemu(elf: Path) -> int:
    """Run a program on a board that QEMU emulates and return its cycles."""
    board = boards.load(f"{EMULATED}:cycles=model")
    assert board.timing
    plugin = qemu_plugin(board.cpu_row.core, board.timing, board.region_specs, elf.with_name("cycles"))
    options = "-object memory-backend-memfd,id=ram,size=2G,share=on -nodefaults -display none -icount shift=7"
    command = ["qemu-system-arm", "-M", f"{EMULATED},memory-backend=ram", *options.split(), "-semihosting"]
    command += ["-plugin", plugin, "-kernel", str(elf)]
    completed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return int((completed.stdout + completed.stderr)[-8:], 16)


def _segments(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD":
            yield segment["p_vaddr"], segment.data().ljust(segment["p_memsz"], b"\0")


if __name__ == "__main__":
    sys.exit(main())
