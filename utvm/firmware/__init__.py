# SPDX-License-Identifier: Apache-2.0
"""Firmware: libraries, the runtime and a board's port linked into an image, and its size.

:func:`compile_for` compiles a model for a board, :func:`build` makes a :class:`Firmware` of one or more libraries.
The linker script follows the board's memory regions. An image that is too large is refused with the section, its
size and the space available.
"""

from utvm.firmware.build import ImageSources, build, compile_for, image_sources
from utvm.firmware.image import Firmware, Section, Shares

__all__ = ["Firmware", "ImageSources", "Section", "Shares", "build", "compile_for", "image_sources"]
