# SPDX-License-Identifier: Apache-2.0
"""C sources: functions printed from lowered TIRx, and the files of a library."""
