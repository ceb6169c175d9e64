"""Compiling with a memory: a model that was compiled before is not compiled again."""

import importlib.metadata
from pathlib import Path

from utvm.cache import Cache, content_key, tree_digest
from utvm.compiler.library import Library, from_json, to_json
from utvm.compiler.model import Model
from utvm.compiler.names import identifier

_FILE = "library.json"
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "jinja2", "numpy", "onnx")


def compile_model(model: Model, *, name: str | None = None) -> Library:
    """Compile a model into a library.

    The same model gives the same library, byte for byte. A library that was made before, by the same compiler,
    comes out of the cache, without TVM being imported.

    Args:
        name: begins every global symbol of the library; by default the model's name.

    Raises:
        CompileError: the model holds something that cannot be compiled.
        ConfigError: the cache cannot be written.
    """
    symbol = identifier(name or model.name, "model")
    cache = Cache("libraries")
    key = content_key(model.digest, symbol, *_tools())
    entry = cache.find(key)
    if entry:
        try:
            return from_json((entry / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            cache.discard(key)

    def make(directory: Path) -> None:
        # TVM takes seconds to import, and is needed only here.
        from utvm.compiler.build import build_library

        library = build_library(model, symbol)
        (directory / _FILE).write_text(to_json(library), encoding="utf-8")

    return from_json((cache.fetch(key, make) / _FILE).read_text(encoding="utf-8"))


def _tools() -> list[str]:
    """Return what else shapes a library: this package's source and the packages it uses."""
    return [tree_digest(Path(__file__).parent), *(importlib.metadata.version(name) for name in _PACKAGES)]
