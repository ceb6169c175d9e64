# SPDX-License-Identifier: Apache-2.0
"""Starts a Python that loads nothing from the current folder.

``python -m``, ``-c`` and ``-`` put the current folder first on the module search path, and a script its own;
``-P`` exists only from Python 3.11. So :func:`python_command` runs this file, which removes such entries before it
imports anything, and then runs the program.
"""

import sys

_ROOT = __file__.rpartition("/utvm/")[0]


def python_command(
    program: str, *arguments: str, interpreter: tuple[str, ...] = (sys.executable,), root: str = _ROOT
) -> list[str]:
    """Return the command line that runs a Python program.

    Absolute entries of ``PYTHONPATH`` remain on the search path; empty and relative ones do not. utvm's own
    modules come from the root, whatever the search path.

    Args:
        program: a module's name as for ``python -m``, or the path of a file.
        root: the folder that contains ``utvm``; by default this checkout or installation.
    """
    return [*interpreter, "-S", __file__, root, program, *arguments]


def _run(root: str, program: str) -> None:
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # This file's folder.
    sys.path[:] = [entry for entry in sys.path if entry.startswith("/")]
    import runpy
    import site

    site.main()
    if "/" in program:
        runpy.run_path(program, run_name="__main__")
        return
    if program.startswith("utvm"):
        sys.path.insert(0, root)
        __import__("utvm")
        sys.path.remove(root)
        sys.path += {root}.difference(sys.path)
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _, own_root, *sys.argv = sys.argv
    _run(own_root, sys.argv[0])
