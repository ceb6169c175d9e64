# SPDX-License-Identifier: Apache-2.0
"""Debug ports: probes on USB, OpenOCD and pyOCD processes, and a GDB client for all access to targets."""

from pathlib import Path
from typing import Any

from utvm.base.storage.config import read_yaml

HINTS: dict[str, Any] = read_yaml(Path(__file__).with_name("hints.yaml"))[0]
"""Hints: of a probe without permission (``access``) or board (``no_answer``), and by patterns of a tool's messages."""
