# SPDX-License-Identifier: Apache-2.0
"""Peripherals of STM32 microcontrollers, and the table by which a specification names them."""

from utvm.virtual.stm32.build import MODELS

__all__ = ["MODELS"]
