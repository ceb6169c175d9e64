# SPDX-License-Identifier: Apache-2.0
"""What ``model.package`` and ``model.report`` do and print: what is known of a model without a board."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rich.table import Table

from utvm import boards, compiler
from utvm.cli.choices import CompileChoice, ModelChoice
from utvm.cli.output import OUT
from utvm.compiler import Library
from utvm.compiler.memory.regions import Memory, Region
from utvm.compiler.package import package_model
from utvm.compiler.package.misra import library_counts, reasons, runtime_counts, total
from utvm.compiler.report.page import RuleCount, write_report
from utvm.errors import ConfigError
from utvm.files import check_folder, check_places
from utvm.names import printable

Executor = Literal["aot", "graph"]

_UNITS = {"K": 1024, "M": 1024 * 1024}


@dataclass(frozen=True)
class _Wanted:
    """What the options of ``model.*`` commands ask of the compiler.

    Attributes:
        model: the file.
        run_python: whether it may be a program.
        target: the CPU of the board that was named, or any.
        executor: ahead of time or by a graph description.
        memory: regions and pins.
    """

    model: Path
    run_python: bool
    target: compiler.Target
    executor: Executor
    memory: Memory

    def library(self) -> Library:
        """Compile the model.

        Raises:
            UtvmError: it cannot be compiled, or does not fit.
        """
        model = compiler.load(self.model, run_python=self.run_python)
        return compiler.compile_model(model, target=self.target, executor=self.executor, memory=self.memory)


def _wanted(asked: CompileChoice) -> _Wanted:
    """Read the options: regions as ``fast=16K,slow``, names, the fastest first, each with its size or no limit."""
    model = check_named(asked.model)
    target = boards.load(asked.board).target if asked.board else compiler.Target()
    regions = tuple(_region(item) for item in asked.memory.split(",") if item) or Memory().regions
    pins = dict(_pair(item, "--pin TENSOR=REGION") for item in asked.pin.split(",") if item)
    return _Wanted(model, asked.run_python, target, executor_of(asked.executor), Memory(regions, pins))


def check_named(model: str) -> Path:
    """Return the path of the model's file, and refuse a command without one."""
    if not model:
        raise ConfigError("no model is named", "give one with --model FILE")
    return Path(model)


def load_named(asked: ModelChoice) -> compiler.Model:
    """Read the model that a command is given; raises as :func:`utvm.compiler.load`."""
    return compiler.load(check_named(asked.model), run_python=asked.run_python)


def executor_of(name: str) -> Executor:
    """Check the name of an executor.

    Raises:
        ConfigError: there is no such executor.
    """
    if name not in ("aot", "graph"):
        raise ConfigError(f"there is no executor {name!r}", "aot calls the operators, graph reads a description")
    return cast(Executor, name)


def package(asked: CompileChoice, output: str) -> None:
    """Write a model's library as one archive.

    Raises:
        UtvmError: the model cannot be compiled, or the archive not be written.
    """
    wanted = _wanted(asked)
    path = Path(output or f"{wanted.model.stem}.tar")
    check_places(path)
    package_model(
        wanted.model,
        path,
        run_python=wanted.run_python,
        target=wanted.target,
        executor=wanted.executor,
        memory=wanted.memory,
    )
    OUT.print(f"wrote {path}, {path.stat().st_size:,} bytes; its README.md says how it is used")


def report(asked: CompileChoice, output: str, misra: bool) -> None:
    """Print what the compiler made of a model, and write it as a page.

    Args:
        misra: whether to let cppcheck count what the library and the runtime break of MISRA C.

    Raises:
        UtvmError: the model cannot be compiled, or the report not be written.
    """
    check_folder(output or "build")
    library = _wanted(asked).library()
    _print_operators(library)
    for arena in library.arenas:
        OUT.print(f"{arena.region}: {arena.size_bytes:,} bytes, inputs and outputs counted")
    OUT.print(
        f"working memory: {library.arena_bytes:,} bytes; no plan needs less than {library.lower_bound_bytes:,}"
    )
    OUT.print(f"constants: {library.weights_bytes:,} bytes")
    for leftover in library.leftovers:
        OUT.print(f"in float: {leftover.operator} ({printable(leftover.tensor)}): {leftover.reason}")
    rules = _misra(library) if misra else None
    _, page = write_report(library, Path(output or "build") / f"{library.name}-report", rules)
    OUT.print(f"report: {page}")


def _misra(library: Library) -> list[RuleCount]:
    OUT.print("counting what cppcheck finds of MISRA C: with many weights, it takes minutes")
    ours, runtimes, left = library_counts(library), runtime_counts(), reasons().left
    rules = [
        RuleCount(rule, ours.get(rule, 0), runtimes.get(rule, 0), left.get(rule, "no reason is known"))
        for rule in total([ours, runtimes])
    ]
    for each in rules:
        OUT.print(f"MISRA C:2012 {each.rule}: {each.library} in the library, {each.runtime} in the runtime")
    return rules


def _print_operators(library: Library) -> None:
    table = Table("step", "operator", "makes", box=None)
    table.add_column("MACs", justify="right")
    for number, call in enumerate(library.calls):
        table.add_row(str(number), call.kind, printable(", ".join(call.writes)), f"{call.macs:,}")
    OUT.print(table)


def _region(text: str) -> Region:
    name, _, size = text.partition("=")
    if not size:
        return Region(name)
    number, unit = (size[:-1], _UNITS[size[-1]]) if size[-1] in _UNITS else (size, 1)
    if not number.isdecimal():
        raise ConfigError(f"{text!r} is no memory region", "write NAME=SIZE, with a size like 65536 or 64K")
    return Region(name, int(number) * unit)


def _pair(text: str, form: str) -> tuple[str, str]:
    left, _, right = text.rpartition("=")
    if not left or not right:
        raise ConfigError(f"{text!r} cannot be read", f"the form is {form}")
    return left, right
