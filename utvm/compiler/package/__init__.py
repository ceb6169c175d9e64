# SPDX-License-Identifier: Apache-2.0
"""Packaging: a library becomes one archive that other people's build systems take as it is.

The archive is in TVM's Model Library Format, version 7, and at the same time a CMake project, a Zephyr module and
an Arduino library. Every file is in it once: ``docs/package.md`` shows the layout, ``docs/package.schema.json`` is
the schema of its ``metadata.json``.
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
