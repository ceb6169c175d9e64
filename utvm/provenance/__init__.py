# SPDX-License-Identifier: Apache-2.0
"""Origin of a run: commit, locked packages, location, and the lease of a shared board."""
