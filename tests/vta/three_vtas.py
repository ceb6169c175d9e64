# SPDX-License-Identifier: Apache-2.0
"""Three VTAs: the bitstreams' configuration, one with small blocks and buffers, one with a batch of two rows."""

from pathlib import Path

from utvm.runtime.vta.configuration import DEFAULT

_OTHERS = Path(__file__).parent / "configurations"
CONFIGURATIONS = {path.stem: path for path in (DEFAULT, *_OTHERS.glob("*.json"))}
