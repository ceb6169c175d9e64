# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits: 1,797 real images of 8 by 8 pixels, split into training and held-out images.

``digits.npz`` is the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak,
1998), under CC BY 4.0.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

HELD_OUT = 400
"""Number of images kept out of training."""

_SPLIT_SEED = 20

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def training() -> tuple[Images, Labels]:
    """The 1,397 training images; shapes as for :func:`held_out`."""
    return _part(slice(HELD_OUT, None))


def held_out() -> tuple[Images, Labels]:
    """The 400 test images, always in the same order.

    Returns:
        Images as float32 of shape (400, 1, 8, 8), values 0 to 16; labels as int64 of shape (400,), 0 to 9.
    """
    return _part(slice(None, HELD_OUT))


def _part(which: slice) -> tuple[Images, Labels]:
    digits = np.load(Path(__file__).with_name("digits.npz"))
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(digits["labels"]))[which]
    images = digits["images"][order].astype(np.float32).reshape(-1, 1, 8, 8)
    return images, digits["labels"][order].astype(np.int64)
