# SPDX-License-Identifier: Apache-2.0
"""What is known against locked packages, from files at hand: OSV's export for Python, the tracker's for Debian.

Nothing here uses a network. Whoever fetches the files decides from where; what is missing, cannot be read or is
too old ends in an error, since without it "nothing found" would be a guess.
"""
