# SPDX-License-Identifier: Apache-2.0
"""The commands ``vta.*``: the accelerator's instructions, written and read."""

from collections.abc import Callable
from pathlib import Path

from invoke.context import Context

from utvm.base.storage.files import check_places, read_text, write_whole
from utvm.cli import task
from utvm.cli.output import OUT
from utvm.errors import ConfigError

_HELP = {
    "config": "the accelerator's vta_config.json (default: UTVM_VTA_CONFIG, else the project's)",
    "output": "the file to write",
}


@task(
    example="vta.encode program.txt program.hex",
    page="docs/vta.md",
    help={**_HELP, "input": "lines such as: load mem=INP sram=16 dram=4096 y_size=1 x_size=4 x_stride=4"},
)
def encode(_: Context, input: str, output: str, config: str = "") -> None:  # noqa: A002
    """Write VTA's instructions: each line becomes "LINE | its bytes in hexadecimal, the lowest first"."""
    from utvm.runtime.vta.configuration import load_configuration
    from utvm.runtime.vta.instructions import InstructionSet

    instructions = InstructionSet(load_configuration(config or None))
    _translate(input, output, lambda line: f"{line} | {instructions.assemble(line).hex()}")


@task(
    example="vta.decode program.hex program.txt",
    page="docs/vta.md",
    help={**_HELP, "input": "lines of hexadecimal, or lines that vta.encode has written"},
)
def decode(_: Context, input: str, output: str, config: str = "") -> None:  # noqa: A002
    """Read VTA's instructions: each line of hexadecimal becomes the line that says the same."""
    from utvm.runtime.vta.configuration import load_configuration
    from utvm.runtime.vta.instructions import InstructionSet

    instructions = InstructionSet(load_configuration(config or None))

    def said(line: str) -> str:
        digits = line.rpartition("|")[2].strip()
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raise ConfigError(
                f"{digits!r} is not hexadecimal", "write an instruction as vta.encode does"
            ) from None
        return instructions.disassemble(raw)

    _translate(input, output, said)


def _translate(source: str, output: str, one: Callable[[str], str]) -> None:
    """Make a line of each line of a file that is not empty."""
    check_places(output)
    lines = read_text(source).splitlines()
    made = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                made.append(one(line.strip()))
            except ConfigError as error:
                raise ConfigError(f"{source}:{number}: {error.message}", error.hint) from error
    write_whole(Path(output), "".join(f"{line}\n" for line in made).encode())
    OUT.print(f"wrote {output}, {len(made)} lines")
