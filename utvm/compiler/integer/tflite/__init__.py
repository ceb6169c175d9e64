# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's operators whose kernels are written here; a family each. The folder is the table."""
