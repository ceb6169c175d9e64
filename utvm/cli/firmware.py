"""What ``firmware.build`` does and prints."""

from pathlib import Path

from rich.markup import escape

from utvm import boards, compiler, firmware
from utvm.cli.model import check_named, check_places, note_input, print_use, read_inputs, write_whole
from utvm.cli.output import OUT
from utvm.errors import ConfigError


def build_firmware(model: Path, board_name: str, input_path: str, output_path: str) -> None:
    """Build a model's firmware that stands alone, and write it as an ELF file and as one block of bytes.

    Raises:
        UtvmError: whatever went wrong on the way; DoesNotFitError if it is too big.
    """
    board = boards.load_chip(board_name)
    check_named(model)
    elf = Path(output_path or f"{model.stem}.elf")
    if elf.suffix != ".elf":
        raise ConfigError(
            f"{elf}: is no name for an ELF file", "it ends in .elf; a .bin file is written beside it"
        )
    check_places(str(elf))
    library = compiler.compile_model(compiler.load(model), target=board.target)
    image = firmware.build(board, [library], "standing_alone", read_inputs(library, input_path))
    address, contents = image.binary
    block = elf.with_suffix(".bin")
    write_whole(elf, image.elf.read_bytes())
    write_whole(block, contents)
    note_input(library, input_path)
    OUT.print(f"wrote {escape(str(elf))}, and {escape(str(block))} for address {address:#010x}")
    shares = image.shares
    OUT.print(
        f"code and constants: model {shares.model:,}, stored input {shares.stored:,}, "
        f"board {shares.board:,}, runtime {shares.runtime:,} bytes"
    )
    print_use(board, image)
    OUT.print(f"console: {board.console.name}, {board.console.baud} baud")
