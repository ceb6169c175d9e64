# SPDX-License-Identifier: Apache-2.0
"""The ground floor: processes, storage, logging, text. It knows nothing of boards or models."""
