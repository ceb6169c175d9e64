# SPDX-License-Identifier: Apache-2.0
"""Parsing the output of e2fsprogs when a disk is created."""

import pytest

from utvm.environment.disk import used_inodes
from utvm.errors import ProvisionError

_DUMPE2FS = """Filesystem UUID:          5f7a1c1e-0000-4000-8000-00000000feed
Inode count:              48
Free inodes:              31
First inode:              11
Inode size:               256

Group 0: (Blocks 1-8192) csum 0x1636 [ITABLE_ZEROED]
  3805 free blocks, 10 free inodes, 4 directories, 10 unused inodes
  Free blocks: 4388-8192
  Free inodes: 13, 16-23
Group 1: (Blocks 8193-16384) csum 0xfc8c [INODE_UNINIT]
  Free blocks: 8451-16384
  Free inodes: 26-48
Group 2: (Blocks 8193-16384) csum 0xfc8c [INODE_UNINIT]
  Free inodes:
"""


def test_used_inodes_are_those_that_are_not_free() -> None:
    assert list(used_inodes(_DUMPE2FS)) == [11, 12, 14, 15, 24, 25]


def test_output_of_another_version_is_refused() -> None:
    with pytest.raises(ProvisionError, match="First inode"):
        used_inodes(_DUMPE2FS.replace("First inode", "First"))
