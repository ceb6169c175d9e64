"""The compiler room: a model file goes in, a library of C sources comes out.

A *library* is portable: C99, its weights as constants, one arena that the caller owns, no malloc, and no board
in it. The path of a model through this room is told in ``docs/compiler.md``.

TVM takes seconds to import, so the modules that need it are imported only when a model is really compiled.
"""

from utvm.compiler.library import Library, Tensor

__all__ = ["Library", "Tensor"]
