# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/firmware.yaml``."""

import dataclasses
from pathlib import Path

from utvm import boards, errors, firmware, selection
from utvm.base.storage.files import check_folder, check_writable, write_whole
from utvm.cli import board_run, choices, compiling
from utvm.cli.compiling import compile_choice, compile_for, compile_options, load_model, print_use, require_model_file
from utvm.cli.output import OUT
from utvm.firmware.build import ship_sources, shipped_sources
from utvm.firmware.stack import UnknownNeedError, measure_stack


def build(
    request: choices.CompiledChoice,
    board: str,
    input: str,  # noqa: A002  the option's name
    output: str,
    mlperf: str,
) -> None:
    if mlperf:
        from utvm.cli.mlperf_run import write_image

        write_image(request, board, mlperf, output)
        return
    chip = boards.load_chip(board)
    model = require_model_file(request.model)
    elf = Path(output or f"{model.stem}.elf")
    if elf.suffix != ".elf":
        raise errors.ConfigError(f"{elf}: --output must end in .elf", "a .bin file is written beside it")
    binary = elf.with_suffix(".bin")
    check_writable(elf, binary)
    check_folder(shipped_sources(elf))
    library = compile_choice(chip, request)
    stored = compiling.read_inputs(library, input)
    image = firmware.build(chip, [library], "standing_alone", stored)
    address, contents = image.binary
    write_whole(elf, image.elf.read_bytes())
    write_whole(binary, contents)
    ship_sources(image, "standing_alone", stored, elf)
    compiling.note_input(library, input)
    OUT.print(f"wrote {elf}, and {binary} for address {address:#010x}")
    OUT.print(f"sources for debuggers: {shipped_sources(elf)}")
    shares = image.shares
    OUT.print(
        f"code and constants: model {shares.model:,}, stored input {shares.stored:,}, "
        f"board {shares.board:,}, runtime {shares.runtime:,} bytes"
    )
    print_use(image)
    OUT.print(f"console: {chip.line.name}, {chip.line.baud} baud" if chip.line else "no console: it reports over RTT")
    figures = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes, "shares": shares}
    OUT.results({"elf": str(elf), "bin": str(binary), "address": address, "board": chip.name, **figures})


def flash(elf: str, where: selection.BoardSelection, listen: choices.ListenChoice, address: str) -> None:
    if Path(elf).is_dir():
        from utvm.project import Project

        if address:
            raise errors.ConfigError("--address is for a .bin file", "leave it out")
        project = Project(elf)
        where = where if where.board else dataclasses.replace(where, board=project.facts.board)
        board_run.flash(where, str(project.build().elf), listen.monitor, project.facts.pipe, swo=listen.swo)
    else:
        board_run.flash(where, elf, listen.monitor, address=_parse_address(address), swo=listen.swo)


def _parse_address(text: str) -> int | None:
    with errors.ConfigError.on(ValueError, f"--address {text} is not an address", "give a number: 0x08000000"):
        return int(text, 0) if text else None


def size(request: choices.LinkedChoice, board: str) -> None:
    chip = boards.load_chip(board)
    options = compile_options(chip, request)
    library = compile_for(chip, load_model(request), options)
    image = firmware.build(chip, [library], in_ram=options.in_ram)
    need, unknown = None, ""
    try:
        need = measure_stack(image, f"{library.name}_run", library.name)
    except UnknownNeedError as error:
        unknown = str(error)
    sections = [(section, image.parts(section.address, section.size)) for section in image.sections]
    OUT.table(
        ("section", "in", "address", "bytes"),
        rows=[
            (section.name, "+".join(where) or "?", f"{section.address:#010x}", f"{section.size:,}")
            for section, where in sections
        ],
    )
    print_use(image)
    OUT.print(
        f"stack of a run: at most {need.bytes:,} bytes, in {need.way[-1]}, without interrupts"
        if need
        else f"stack of a run: not known, since {unknown}"
    )
    OUT.results(
        {
            "board": chip.name,
            "stack_of_a_run": need,
            "flash_bytes": image.flash_bytes,
            "ram_bytes": image.ram_bytes,
            "regions": {key: {"used": used, "size": chip.region(key).size} for key, used in image.region_use().items()},
            "sections": [
                {"name": section.name, "in": where, "address": section.address, "bytes": section.size}
                for section, where in sections
            ],
        }
    )
