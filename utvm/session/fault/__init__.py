# SPDX-License-Identifier: Apache-2.0
"""Faults that a board reports: the record that it keeps, and what each architecture means by it."""

from utvm.session.fault.record import ARCHITECTURES, RECORD_SIZE, DeviceFault, FaultRecord

__all__ = ["ARCHITECTURES", "RECORD_SIZE", "DeviceFault", "FaultRecord"]
