# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: runs of suites in which a fault is injected at a random moment, and a check of their result.

``python -m tests.faults run`` injects faults, ``python -m tests.faults page`` writes the results to
docs/reliability.md. ``table.yaml`` lists the faults and the allowed results.
"""
