# SPDX-License-Identifier: Apache-2.0
"""Firmware: libraries, the runtime and a board's port linked into an image, and its size."""

from utvm.firmware.build import ImageSources, build, compile_for, image_sources
from utvm.firmware.image import Firmware, Section, Shares

__all__ = ["Firmware", "ImageSources", "Section", "Shares", "build", "compile_for", "image_sources"]
