# SPDX-License-Identifier: Apache-2.0
"""The host's Python for the guest: the interpreter, a program's modules, and libusb."""

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

# Modules that are imported late are imported at once here.
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
    """Files by their path in the guest, and the shell command for that Python."""
    command = [sys.executable, "-c", _LIST, *modules]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    prefix, interpreter, landmark, imported, search = json.loads(output)
    packages = {Path(path).parent for path in imported if path.startswith(f"{ROOT}/utvm/")}
    data = {str(path) for package in packages for path in package.glob("*.yaml")}
    paths_to_copy = {interpreter, landmark, *imported, *data}
    libusb = libusb_package.get_library_path()
    assert libusb
    files = [path for path in paths_to_copy if Path(path).is_file()]
    native = [path for path in (*files, str(libusb)) if path == interpreter or ".so" in Path(path).name]
    libraries = {library for path in native for library in _libraries_of(path)}
    content = dict(map(_pack, {*files, *libraries, str(libusb)}))
    home = f"PYTHONHOME={prefix} PYTHONPATH={':'.join(path for path in search if path)}:{ROOT}"
    return {path.lstrip("/"): data for path, data in content.items()}, f"{home} {interpreter} -S -B"


def _pack(path: str) -> tuple[str, bytes]:
    """Path and content of a file for the guest, compiled and stripped: the guest would take long."""
    if path.endswith(".py"):
        source = Path(path).read_bytes()
        code = marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=2))
        # A compiled module without its source: flags and the date of the source are ignored.
        return f"{path}c", importlib.util.MAGIC_NUMBER + bytes(12) + code
    if ".so" in path:
        with tempfile.NamedTemporaryFile() as stripped_file:
            subprocess.run(["strip", "--strip-unneeded", "-o", stripped_file.name, path], check=True, timeout=60)
            return path, Path(stripped_file.name).read_bytes()
    return path, Path(path).read_bytes()


def _libraries_of(path: str) -> list[str]:
    # ldd fails for a static executable.
    completed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False, timeout=30)
    return re.findall(r"/\S+", completed.stdout)
