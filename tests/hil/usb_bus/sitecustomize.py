# SPDX-License-Identifier: Apache-2.0
"""Replaces Linux's USB bus by a fake one, in each Python with this folder on its path.

The environment variable ``FAKE_USB`` names its folder: see ``tests/probe/fake_usb.py``.
"""

import os
from pathlib import Path

from tests.probe.fake_usb import use

use(Path(os.environ["FAKE_USB"]))
