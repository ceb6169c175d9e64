# SPDX-License-Identifier: Apache-2.0
"""A virtual board as a process: see :mod:`utvm.virtual.serving`."""

import signal
import sys

if __name__ == "__main__":
    # Until the modules are loaded, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from utvm.virtual.serving import main

    sys.exit(main(sys.argv[1:]))
