# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: runs of suites that are struck at a random moment, and what they say of it.

``python -m tests.faults run`` strikes, ``python -m tests.faults page`` writes docs/reliability.md of the results.
``table.yaml`` says what there is to strike, and what a run may say then.
"""
