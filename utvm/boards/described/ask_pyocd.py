# SPDX-License-Identifier: Apache-2.0
"""Run by the Python that has pyOCD: prints the names of its targets, or describes the named ones, as JSON."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyocd.core.memory_map import MemoryType
from pyocd.core.session import Session
from pyocd.target.builtin import BUILTIN_TARGETS


def _describe(name: str) -> dict[str, Any]:
    # The constructor of a target needs a session with a probe; nothing is opened.
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
            # Skip aliases, external memory, and memory of settings.
            and not (region.alias or region.is_external or not region.is_testable)
        ],
        "registers": text.decode("utf-8", "replace") if isinstance(text, bytes) else text,
    }


if __name__ == "__main__":
    print(json.dumps([_describe(name) for name in sys.argv[1:]] or sorted(BUILTIN_TARGETS)))
