# SPDX-License-Identifier: Apache-2.0
"""The host's Python for the guest: the interpreter, the modules that a program needs, and libusb."""

import importlib.util
import json
import marshal
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import libusb_package

ROOT = Path(__file__).parents[3]

# What is imported only when it is needed is needed at once here.
_LIST = """
import encodings.utf_16_le, importlib, json, os, sys
import libusb_package
libusb_package.get_library_path()
for name in sys.argv[1:]:
    importlib.import_module(name)
paths = [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
print(json.dumps([sys.base_prefix, os.path.realpath(sys.executable), os.__file__, paths, sys.path]))
"""


def python_files(*modules: str) -> tuple[dict[str, bytes], str]:
    """Return the files by their path in the guest, and the words by which its shell starts that Python."""
    words = [sys.executable, "-c", _LIST, *modules]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    prefix, interpreter, landmark, imported, search = json.loads(said)
    wanted = {interpreter, landmark, *imported}
    libusb = libusb_package.get_library_path()
    assert libusb
    files = [path for path in wanted if Path(path).is_file()]
    native = [path for path in (*files, str(libusb)) if path == interpreter or ".so" in Path(path).name]
    libraries = {found for path in native for found in _needed(path)}
    content = dict(map(_packed, {*files, *libraries, str(libusb)}))
    home = f"PYTHONHOME={prefix} PYTHONPATH={':'.join(path for path in search if path)}:{ROOT}"
    return {path.lstrip("/"): data for path, data in content.items()}, f"{home} {interpreter} -S -B"


def _packed(path: str) -> tuple[str, bytes]:
    """Return a file as the guest needs it, with its path there: to compile or to load more takes it very long."""
    if path.endswith(".py"):
        source = Path(path).read_bytes()
        code = marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=2))
        # A compiled module without its source: flags and the source's date are not looked at.
        return f"{path}c", importlib.util.MAGIC_NUMBER + bytes(12) + code
    if ".so" in path:
        with tempfile.NamedTemporaryFile() as stripped:
            subprocess.run(["strip", "--strip-unneeded", "-o", stripped.name, path], check=True, timeout=60)
            return path, Path(stripped.name).read_bytes()
    return path, Path(path).read_bytes()


def _needed(path: str) -> list[str]:
    # What is linked statically has nothing to list, and says so with its exit code.
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False, timeout=30)
    return re.findall(r"/\S+", said.stdout)
