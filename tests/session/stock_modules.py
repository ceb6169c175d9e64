# SPDX-License-Identifier: Apache-2.0
"""Modules with a vector add, compiled and exported by TVM's own compiler."""

import tarfile
from pathlib import Path

NUMBERS = 256
TARGETS = {
    "c": {"kind": "c"},
    "this_computer": {"kind": "llvm"},
    "vectors": {"kind": "llvm", "mcpu": "haswell"},
    "cortex_m7": {"kind": "llvm", "mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m7", "mfloat-abi": "hard"},
    "soft": {"kind": "llvm", "mtriple": "thumbv7em-none-eabi", "mcpu": "cortex-m7", "mfloat-abi": "soft"},
}


def export_module(folder: Path, target: str, name: str = "main") -> Path:
    """Compile a vector add and export it, as ``TARGET.tar``; for this computer in parallel or with vectors."""
    import tvm
    from tvm import s_tir, te

    a, b = (te.placeholder((NUMBERS,), "float32", name=letter) for letter in "ab")
    c = te.compute((NUMBERS,), lambda i: a[i] + b[i], name="c")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, c]).with_attr("global_symbol", name))
    outer, inner = schedule.split(schedule.get_loops(schedule.get_sblock("c"))[0], [None, 16])
    if target == "vectors":
        schedule.vectorize(inner)
    if target == "this_computer":
        schedule.parallel(outer)
    selected = tvm.target.Target(TARGETS[target])
    module = tvm.compile(schedule.mod, target=tvm.target.Target(selected, host=selected))
    path = folder / f"{target}.tar"
    module.export_library(str(path))
    return path


def read_only_file(archive: Path) -> bytes:
    """Return the content of an archive's only file."""
    with tarfile.open(archive) as files:
        (member,) = files.getmembers()
        content = files.extractfile(member)
        assert content
        return content.read()
