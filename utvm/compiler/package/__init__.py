# SPDX-License-Identifier: Apache-2.0
"""Package a library as one archive in TVM's Model Library Format, version 7.

It is also a CMake project, a Zephyr module and an Arduino library: ``docs/package.md``.
"""

from utvm.compiler.package.metadata import RunStack
from utvm.compiler.package.misra import misra_counts
from utvm.compiler.package.read import Terms, read_package
from utvm.compiler.package.write import package_files, package_model, write_package

__all__ = [
    "RunStack",
    "Terms",
    "misra_counts",
    "package_files",
    "package_model",
    "read_package",
    "write_package",
]
