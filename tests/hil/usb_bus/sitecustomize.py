# SPDX-License-Identifier: Apache-2.0
"""Puts a fake USB bus in place of Linux's, in each Python that has this folder on its path.

The environment variable ``FAKE_USB`` names its folder: see ``tests/probe/fake_usb.py``.
"""

import os
from pathlib import Path

from tests.probe.fake_usb import use

use(Path(os.environ["FAKE_USB"]))
