# SPDX-License-Identifier: Apache-2.0
"""Many small models in one image, so that the board is flashed only once."""

from collections.abc import Callable, Mapping, Sequence

from utvm.compiler import Library
from utvm.errors import UtvmError
from utvm.firmware import Firmware


class ManyModels:
    """Libraries linked into one image. A library that does not compile only fails its own test.

    Args:
        compilers: a compile function for each case name.
        link: links the image.
    """

    def __init__(
        self, compilers: Mapping[str, Callable[[], Library]], link: Callable[[Sequence[Library]], Firmware]
    ) -> None:
        self._libraries: dict[str, Library] = {}
        self._errors: dict[str, UtvmError] = {}
        for case, compile_case in compilers.items():
            try:
                self._libraries[case] = compile_case()
            except UtvmError as error:
                self._errors[case] = error
        self.image = link(list(self._libraries.values()))

    def library(self, case: str) -> Library:
        """Library of one case.

        Raises:
            UtvmError: it did not compile.
        """
        if case in self._errors:
            raise self._errors[case]
        return self._libraries[case]
