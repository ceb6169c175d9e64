# SPDX-License-Identifier: Apache-2.0
"""The refusal of an operator that has no integer form here."""


class Unfit(Exception):
    """An operator stays in float.

    Args:
        reason: what the report says.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
