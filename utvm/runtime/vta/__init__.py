# SPDX-License-Identifier: Apache-2.0
"""VTA's configuration and instructions, shared by compiler, driver and models; one table of fields."""
