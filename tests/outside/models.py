# SPDX-License-Identifier: Apache-2.0
"""Public models, compared with references: ``UTVM_MODELS=FOLDER python -m tests.outside.models``.

Writes docs/models.md. A folder in FOLDER is a collection: ``source.txt`` has its origin, and its .tflite and .onnx
files are tried.
"""

import hashlib
import multiprocessing
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import utvm
import utvm.compiler.build
import utvm.compiler.frontend
import utvm.session.open_board  # These take seconds to import: once, and not in the process of a model.
from models.tflite_reference import tflite_micro
from utvm.compiler import Tensor
from utvm.compiler.read.evaluators import runtime
from utvm.errors import UtvmError

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
_SECONDS = 240
_RUNS = 3
_EPSILON = 1e-4  # For floats, relative to the largest magnitude: libraries sum in different orders.

_HEAD = """# Public models

Models that others published, each compiled to C for this computer, run {runs} times with random inputs, and
compared: .tflite files with TensorFlow Lite Micro's kernels, .onnx files with ONNX Runtime. Integers must be the
same bits, floats agree to 1/10,000 of the largest; state carries over from run to run. `tests/outside/models.py`
writes this page from what the folder `UTVM_MODELS` holds. The files are not part of this repository. A hash is the
beginning of a file's SHA-256.

"""


def samples(tensors: tuple[Tensor, ...], random: np.random.Generator) -> list[list[np.ndarray]]:
    def values(tensor: Tensor) -> np.ndarray:
        dtype = np.dtype(tensor.dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype) if dtype.itemsize < 4 else np.iinfo(np.int8)
            return random.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(dtype)
        return np.asarray(random.normal(size=tensor.shape), dtype)

    return [[values(tensor) for tensor in tensors] for _ in range(_RUNS)]


def difference(outputs: list[np.ndarray], expected: list[np.ndarray]) -> str:
    for actual, reference in zip(outputs, expected, strict=True):
        if actual.shape != reference.shape or actual.dtype != reference.dtype:
            return f"WRONG: {actual.dtype}{list(actual.shape)} for {reference.dtype}{list(reference.shape)}"
        if actual.dtype.kind == "f":
            if not np.allclose(
                actual, reference, 0, _EPSILON * float(np.abs(reference).max(initial=1e-3)), equal_nan=True
            ):
                return f"WRONG: apart by {np.abs(actual - reference).max():g} of {np.abs(reference).max():g}"
        elif not np.array_equal(actual, reference):
            return f"WRONG: apart by {np.abs(actual.astype(np.int64) - reference).max()} steps"
    return ""


def judge(path: Path) -> str:
    """The result for a model with its reason: right, refused, or WRONG."""
    try:
        with utvm.load(path) as model:
            inputs = samples(model.inputs, np.random.default_rng(0))
            outputs = [list(model.run(*sample).outputs) for sample in inputs]
    except UtvmError as error:
        return f"refused: {error.message.replace(str(path), path.name)}"
    try:
        if path.suffix == ".tflite":
            expected = tflite_micro(path.read_bytes(), inputs, len(outputs[0]))
        else:
            session = runtime(path.read_bytes())
            names = [tensor.name for tensor in session.get_inputs()]
            expected = [session.run(None, dict(zip(names, sample, strict=True))) for sample in inputs]
    except Exception as error:  # a reference may raise anything
        return f"runs; the reference does not: {type(error).__name__}"
    wrong = [
        text for actual, reference in zip(outputs, expected, strict=True) if (text := difference(actual, reference))
    ]
    return wrong[0] if wrong else "right"


def _send(path: Path, end: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        end.send(judge(path))
    except Exception as error:
        end.send(f"INTERNAL ERROR: {error!r}")


def judge_in_time(path: Path) -> str:
    """Like :func:`judge`, in a process of its own with a time limit."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(path, sender))
    process.start()
    sender.close()
    try:
        return str(receiver.recv()) if receiver.poll(_SECONDS) else f"not within {_SECONDS} seconds"
    except EOFError:
        return "CRASH"
    finally:
        process.kill()
        process.join()


@dataclass(frozen=True)
class Collection:
    """Models of one source, with their hashes and results."""

    name: str
    source: str
    rows: list[tuple[str, str, str]]

    def counts(self) -> Counter[str]:
        return Counter(re.split("[:;]", result)[0] for _, _, result in self.rows)


def try_collections(folder: Path) -> Iterator[Collection]:
    for source in sorted(folder.glob("*/source.txt")):
        rows = []
        for path in sorted(path for path in source.parent.rglob("*") if path.suffix in (".tflite", ".onnx")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            result = " ".join(judge_in_time(path).split())[:240]
            rows.append((str(path.relative_to(source.parent)), digest, result))
            print(*rows[-1], flush=True)
        yield Collection(source.parent.name, source.read_text(encoding="utf-8").strip(), rows)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |\n"


def page(collections: list[Collection]) -> str:
    def results(counts: Counter[str]) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())

    total = sum((collection.counts() for collection in collections), Counter[str]())
    parts = [_HEAD.format(runs=_RUNS), _row("collection", "models", "results"), "|---|---|---|\n"]
    parts += [_row(collection.name, len(collection.rows), results(collection.counts())) for collection in collections]
    parts.append(_row("all", total.total(), results(total)))
    for collection in collections:
        parts += [
            f"\n## {collection.name}\n\n{collection.source}\n\n",
            _row("file", "hash", "result"),
            "|---|---|---|\n",
        ]
        parts += [_row(name, f"`{digest}`", result) for name, digest, result in collection.rows]
    return "".join(parts)


def main(folder: str) -> str | None:
    if not Path(folder).is_dir() or not folder:
        return "UTVM_MODELS names no folder of models"
    collections = []
    for collection in try_collections(Path(folder)):
        collections.append(collection)
        PAGE.write_text(page(collections), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(os.environ.get("UTVM_MODELS", "")))
