# SPDX-License-Identifier: Apache-2.0
"""utvm takes a trained model to a microcontroller board and proves, on that board, that it works.

The rooms, in the order a model passes through them:

- :mod:`utvm.compiler`: a model file becomes a library of C sources.
- :mod:`utvm.runtime`: the C that runs on boards.
- :mod:`utvm.firmware`: libraries and runtime become an image for one board.
- :mod:`utvm.boards`, :mod:`utvm.toolchain`: what a board and a cross compiler are, as data.
- :mod:`utvm.probe`: finding debug probes and driving them through OpenOCD.
- :mod:`utvm.virtual`: software models of boards, driven by the same OpenOCD.
- :mod:`utvm.bench`: puts a board on the bench, physical or virtual.
- :mod:`utvm.session`: runs a model on that board.
- :mod:`utvm.hil`: suites, verdicts and reports.
"""

__version__ = "0.1.0"
