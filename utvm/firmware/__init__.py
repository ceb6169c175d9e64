# SPDX-License-Identifier: Apache-2.0
"""Links libraries, the runtime and a board's port into an image for one board, and says how large it is.

:func:`compile_for` compiles a model for a board, :func:`build` makes a :class:`Firmware` from a board and the
libraries of one or more models. The linker script is made from the board's memory regions; an image that is too
big is refused with the section, its need and the room there is.
"""

from utvm.firmware.build import ImageSources, build, compile_for, image_sources
from utvm.firmware.image import Firmware, Section, Shares

__all__ = ["Firmware", "ImageSources", "Section", "Shares", "build", "compile_for", "image_sources"]
