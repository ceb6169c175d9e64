# SPDX-License-Identifier: Apache-2.0
"""Run by the Python that has pyOCD: prints, as JSON, the names of its targets, or what it knows of those named."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyocd.core.memory_map import MemoryType
from pyocd.core.session import Session
from pyocd.target.builtin import BUILTIN_TARGETS


def main(names: list[str]) -> None:
    """Print the names of all targets; or, of those named, part, memory and registers (SVD)."""
    print(json.dumps([_told(name) for name in names] if names else sorted(BUILTIN_TARGETS)))


def _told(name: str) -> dict[str, Any]:
    # A target asks for a session with a probe as it is made; nothing is opened.
    probe = SimpleNamespace(unique_id="", associated_board_info=None, create_associated_board=lambda: True)
    target = BUILTIN_TARGETS[name](Session(probe, auto_open=False, no_config=True, project_dir="/"))
    registers = getattr(target, "_svd_location", None)
    file = registers and registers.filename
    text = Path(file).read_bytes() if isinstance(file, str) else file.read() if file else b""
    return {
        "part": target.part_number,
        "memory": [
            {
                "name": str(region.name),
                "start": region.start,
                "size": region.length,
                "kind": "flash" if region.type is MemoryType.FLASH else "ram",
                "sector": region.blocksize if region.type is MemoryType.FLASH else 0,
                "first": bool(region.is_boot_memory),
            }
            for region in target.memory_map
            if region.type in (MemoryType.FLASH, MemoryType.RAM)
            # Not what shows something else, lies outside of the chip, or is for its settings.
            and not (region.alias or region.is_external or not region.is_testable)
        ],
        "registers": text.decode("utf-8", "replace") if isinstance(text, bytes) else text,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
