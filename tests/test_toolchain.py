# SPDX-License-Identifier: Apache-2.0
"""Object files do not depend on the folder of their source."""

from pathlib import Path

import pytest

from utvm.toolchain.compiler import DIRECTORY, Toolchain

_C = '#include "number.h"\nint number(void) { return NUMBER; }\nconst char *file(void) { return __FILE__; }\n'


def _compile(toolchain: Toolchain, folder: Path, stand_in: Path) -> list[bytes]:
    """Compile C with a header, and assembler, in a folder; the objects name another folder."""
    (folder / "work").mkdir(parents=True)
    files = {"number.h": "#define NUMBER 7\n", "number.c": _C, "empty.S": '#include "number.h"\n  .byte NUMBER\n'}
    for name, text in files.items():
        (folder / name).write_text(text)
    with toolchain.compile_objects(
        folder / "work",
        [folder / "number.c", folder / "empty.S"],
        cpu=next(iter(toolchain.data.cpus)),
        include=[folder],
        path_map=[(folder, str(stand_in)), (folder / "work", "/made")],
    ) as objects:
        return [path.read_bytes() for path, _ in objects.files]


@pytest.mark.parametrize("name", sorted(path.stem for path in DIRECTORY.glob("*.yaml")))
def test_placeholder_folder_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """As in a container, which has the checkout at the path that debug information names for every checkout."""
    stand_in = tmp_path / "stands for all"
    c, assembler = _compile(Toolchain(name), stand_in, stand_in)
    assert [c, assembler] == _compile(Toolchain(name), tmp_path / "some other place", stand_in)
    assert f"{stand_in}/number.c".encode() in c
