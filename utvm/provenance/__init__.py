# SPDX-License-Identifier: Apache-2.0
"""Where and from what a run was made: commit, locked packages, location, and the lease of a shared board."""
