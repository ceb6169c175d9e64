# SPDX-License-Identifier: Apache-2.0
"""Package a library: Model Library Format 7, also for CMake, Zephyr and Arduino (``docs/package.md``)."""

from utvm.compiler.package.archive import RunStack, Terms, package_files, package_model, read_package, write_package
from utvm.compiler.package.misra import misra_counts

__all__ = ["RunStack", "Terms", "misra_counts", "package_files", "package_model", "read_package", "write_package"]
