# SPDX-License-Identifier: Apache-2.0
"""What ``model.package`` and ``model.report`` do and print: what is known of a model without a board."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

from rich.table import Table

from utvm import boards, compiler
from utvm.base.storage.cache import file_digest
from utvm.base.storage.files import check_folder, check_writable
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.boards.accelerators import assistant
from utvm.cli.choices import CompileChoice, CompiledChoice, ExecutorChoice, JsonChoice, MemoryChoice, ModelChoice
from utvm.cli.compiling import compile_for, compiling
from utvm.cli.output import OUT, check_json, write_json
from utvm.cli.progress import working
from utvm.compiler import ANY, CompileOptions, Library
from utvm.compiler.accelerator import Wish
from utvm.compiler.memory.regions import Memory, Region
from utvm.compiler.package import package_model
from utvm.compiler.package.misra import library_counts, reasons, runtime_counts, total
from utvm.compiler.report import RuleCount, write_report
from utvm.errors import ConfigError
from utvm.firmware.stack import run_stack
from utvm.tuning.log import tuned_target_for

Executor = Literal["aot", "graph"]

_UNITS = {"K": 1024, "M": 1024 * 1024}


def compile_named(
    board: Board, asked: CompiledChoice, *, in_ram: bool = False, name: str | None = None
) -> Library:
    """Compile the model of a command line for a board."""
    model = load_named(asked)
    return compile_for(board, model, compile_options(board, asked, in_ram), explain=asked.explain, name=name)


def compile_options(board: Board | None, asked: CompiledChoice, in_ram: bool = False) -> CompileOptions:
    """Read the compile options of a command line; without a board, for any CPU."""
    accelerator = wish_of(asked.accelerator) if isinstance(asked, ExecutorChoice) else "auto"
    if board is None and accelerator == "all":
        raise ConfigError("--accelerator all is for a board's accelerator", "name the board with --board")
    if board is None and asked.tuned:
        raise ConfigError("--tuned is for the core that was tuned for", "name a board that has it with --board")
    return CompileOptions(
        target=replace(tuned_target_for(board, asked.tuned) if board else ANY, unchecked=asked.unchecked_indices),
        memory=memory_of(asked) if isinstance(asked, MemoryChoice) else Memory(),
        executor=executor_of(asked.executor) if isinstance(asked, ExecutorChoice) else "aot",
        accelerator=accelerator,
        in_ram=in_ram,
    )


def _library(asked: CompileChoice) -> Library:
    """Compile the model of a command line for a board without limits of its memory, or for any CPU."""
    board = boards.load(asked.board) if asked.board else None
    options = compile_options(board, asked)
    model = load_named(asked)
    with compiling(model.origin, asked.explain):
        return compiler.compile_model(
            model,
            target=options.target or ANY,
            executor=options.executor,
            memory=options.memory,
            assistant=assistant(board, options.accelerator) if board else None,
        )


def memory_of(asked: MemoryChoice) -> Memory:
    """Read regions as ``fast=16K,slow``, the fastest first, each with its size or no limit, and what is pinned."""
    regions = tuple(_region(item) for item in asked.memory.split(",") if item) or Memory().regions
    return Memory(regions, dict(_pair(item, "--pin TENSOR=REGION") for item in asked.pin.split(",") if item))


def check_named(model: str) -> Path:
    """Return the path of the model's file, and refuse a command without one."""
    if not model:
        raise ConfigError("no model is named", "give one with --model FILE")
    return Path(model)


def load_named(asked: ModelChoice) -> compiler.Model:
    """Read the model that a command is given; raises as :func:`utvm.compiler.load`."""
    path = check_named(asked.model)
    return compiler.load(path, run_python=asked.run_python, shapes=shapes_of(asked.shape))


def shapes_of(text: str) -> dict[str, tuple[int, ...]]:
    """Read shapes such as ``image=1,8,8,1;mask=1,8``."""
    shapes = {}
    for item in filter(None, text.split(";")):
        name, sizes = _pair(item, "--shape NAME=1,8,8,1")
        if not all(size.strip().isdecimal() and int(size) for size in sizes.split(",")):
            raise ConfigError(f"{item!r} is no shape", "write NAME=1,8,8,1, with a size from 1 for each dimension")
        shapes[name] = tuple(map(int, sizes.split(",")))
    return shapes


def executor_of(name: str) -> Executor:
    """Check the name of an executor."""
    if name not in ("aot", "graph"):
        raise ConfigError(f"there is no executor {name!r}", "aot calls the operators, graph reads a description")
    return cast(Executor, name)


def wish_of(name: str) -> Wish:
    """Check what is wished for an accelerator."""
    if name not in get_args(Wish):
        raise ConfigError(f"--accelerator cannot be {name!r}", f"it is one of {', '.join(get_args(Wish))}")
    return cast(Wish, name)


def package(asked: CompileChoice, json: JsonChoice, output: str) -> None:
    """Write a model's library as one archive."""
    if wish_of(asked.accelerator) == "all":
        raise ConfigError("an archive has no driver of an accelerator in it", "leave --accelerator out")
    model, board = check_named(asked.model), boards.load(asked.board) if asked.board else None
    options = compile_options(board, asked)
    path = Path(output or f"{model.stem}.tar")
    check_writable(path)
    check_json(json)
    with compiling(model, asked.explain):
        package_model(
            model,
            path,
            run_python=asked.run_python,
            shapes=shapes_of(asked.shape),
            target=options.target or ANY,
            executor=options.executor,
            memory=options.memory,
            stack=run_stack(board, _library(asked)) if board else None,
        )
    OUT.print(f"wrote {path}, {path.stat().st_size:,} bytes; its README.md says how it is used")
    write_json(json, {"archive": str(path), "bytes": path.stat().st_size, "sha256": file_digest(path)})


def report(asked: CompileChoice, wanted: JsonChoice, output: str, misra: bool) -> None:
    """Print what the compiler made of a model, and write it as a page.

    Args:
        misra: whether to let cppcheck count what the library and the runtime break of MISRA C.
    """
    check_folder(output or "build")
    check_json(wanted)
    library = _library(asked)
    _print_operators(library)
    for arena in library.arenas:
        OUT.print(f"{arena.region}: {arena.size_bytes:,} bytes, inputs and outputs counted")
    OUT.print(
        f"working memory: {library.arena_bytes:,} bytes; no plan needs less than {library.lower_bound_bytes:,}"
    )
    OUT.print(f"constants: {library.weights_bytes:,} bytes")
    for leftover in library.leftovers:
        OUT.print(f"in float: {leftover.operator} ({printable(leftover.tensor)}): {leftover.reason}")
    _print_decisions(library)
    rules = _misra(library) if misra else None
    _, page = write_report(library, Path(output or "build") / f"{library.name}-report", rules)
    OUT.print(f"report: {page}")
    write_json(wanted, _content(library, page, rules))


def _content(library: Library, page: Path, rules: list[RuleCount] | None) -> dict[str, object]:
    """Return what the JSON has."""
    return {
        "model": library.name,
        "library_sha256": library.digest,
        "operators": [
            {"kind": call.kind, "makes": list(call.writes), "macs": call.macs, "kernel": call.kernel}
            for call in library.calls
        ],
        "arenas": {arena.region: arena.size_bytes for arena in library.arenas},
        "working_bytes": library.arena_bytes,
        "least_working_bytes": library.lower_bound_bytes,
        "weights_bytes": library.weights_bytes,
        "in_float": [
            {"operator": each.operator, "tensor": each.tensor, "reason": each.reason} for each in library.leftovers
        ],
        "misra": None if rules is None else {each.rule: each.library + each.runtime for each in rules},
        "report": str(page),
    }


def _misra(library: Library) -> list[RuleCount]:
    with working(f"misra {library.name}", "cppcheck of the library") as step:
        ours = library_counts(library)
        step("cppcheck of the runtime")
        runtimes, left = runtime_counts(), reasons().left
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
    table.add_column("kernel")
    for number, call in enumerate(library.calls):
        table.add_row(str(number), call.kind, printable(", ".join(call.writes)), f"{call.macs:,}", call.kernel)
    OUT.print(table)


def _print_decisions(library: Library) -> None:
    """Print what runs where on a board with an accelerator, and why."""
    if not library.decisions:
        return
    table = Table("makes", "where", "why", box=None)
    for heading in ("CPU cycles", "with accelerator", "bytes moved"):
        table.add_column(heading, justify="right")
    for each in library.decisions:
        figures = (each.cpu_cycles, each.accelerator_cycles, each.moved_bytes)
        table.add_row(printable(each.tensor), each.where, each.reason, *(f"{number:,}" for number in figures))
    OUT.print(table)
    OUT.print("cycles are estimates, in cycles of the CPU")


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
