# SPDX-License-Identifier: Apache-2.0
"""Files, the cache, locks, temporary folders, free space, YAML and array files."""
