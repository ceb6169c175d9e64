# SPDX-License-Identifier: Apache-2.0
"""What ``with`` closes when it ends."""

from types import TracebackType
from typing import TypeVar

_ClosingT = TypeVar("_ClosingT", bound="Closing")


class Closing:
    """Something with a ``close``, ready from the beginning: leaving its ``with`` block closes it."""

    def close(self) -> None:
        """Let go of what it holds. Safe to call again."""
        raise NotImplementedError

    def __enter__(self: _ClosingT) -> _ClosingT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
