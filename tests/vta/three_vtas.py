# SPDX-License-Identifier: Apache-2.0
"""Three VTAs: the one that bitstreams were built for, one of small blocks and buffers, one of two rows a batch."""

from pathlib import Path

from utvm.runtime.vta.configuration import DEFAULT

_OTHERS = Path(__file__).parent / "configurations"
CONFIGURATIONS = {path.stem: path for path in (DEFAULT, *_OTHERS.glob("*.json"))}
