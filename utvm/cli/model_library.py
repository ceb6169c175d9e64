# SPDX-License-Identifier: Apache-2.0
"""``model.package`` and ``model.report``: a model's library without a board."""

from collections.abc import Sequence
from pathlib import Path

from utvm import boards, compiler, errors
from utvm.base.storage import cache, files
from utvm.base.text.quoting import printable
from utvm.boards.accelerators import assistant
from utvm.cli import choices
from utvm.cli.compiling import compile_options, compiling, load_model, require_model_file
from utvm.cli.output import OUT, show_progress
from utvm.compiler import ANY, Library
from utvm.compiler.package import package_model
from utvm.compiler.package.misra import library_counts, reasons, runtime_counts, total
from utvm.compiler.report import RuleCount, write_report
from utvm.firmware.stack import run_stack


def _library(request: choices.CompileChoice, explain: bool = False) -> Library:
    board = boards.load(request.board) if request.board else None
    options = compile_options(board, request)
    model = load_model(request)
    with compiling(model.origin, explain):
        return compiler.compile_model(
            model,
            target=options.target or ANY,
            executor=options.executor,
            memory=options.memory,
            assistant=assistant(board, options.accelerator) if board else None,
        )


def package(request: choices.CompileChoice, output: str) -> None:
    model, board = require_model_file(request.model), boards.load(request.board) if request.board else None
    if request.settings.get("accelerator") == "all":
        raise errors.ConfigError("an archive contains no driver for an accelerator", "leave --set accelerator=all out")
    options = compile_options(board, request)
    path = Path(output or f"{model.stem}.tar")
    files.check_writable(path)
    with compiling(model):
        package_model(
            model,
            path,
            run_python=request.run_python,
            shapes=request.shapes,
            values=request.values,
            signature=request.settings.get("signature", ""),
            target=options.target or ANY,
            executor=options.executor,
            memory=options.memory,
            stack=run_stack(board, _library(request)) if board else None,
        )
    OUT.print(f"wrote {path}, {path.stat().st_size:,} bytes; its README.md explains its use")
    OUT.results({"archive": str(path), "bytes": path.stat().st_size, "sha256": cache.file_digest(path)})


def report(request: choices.CompileChoice, output: str, explain: bool, misra: bool) -> None:
    files.check_folder(output or "build")
    library = _library(request, explain)
    OUT.table(
        ("step", "operator", "makes", ">MACs", "kernel"),
        rows=[
            (str(number), call.kind, ", ".join(call.writes), call.macs, call.kernel)
            for number, call in enumerate(library.calls)
        ],
    )
    included = "outputs; the input comes by rows" if library.takes_rows else "inputs and outputs"
    for arena in library.arenas:
        OUT.print(f"{arena.region}: {arena.size_bytes:,} bytes, including {included}")
    OUT.print(f"working memory: {library.arena_bytes:,} bytes; no plan needs less than {library.lower_bound_bytes:,}")
    copied = f"; {count:,} are copied to RAM at the start" if (count := library.target.weights_in_ram) else ""
    OUT.print(f"constants: {library.weights_bytes:,} bytes{copied}")
    for leftover in library.leftovers:
        OUT.print(f"in float: {leftover.operator} ({printable(leftover.tensor)}): {leftover.reason}")
    for removal in library.removals:
        OUT.print(f"not computed: {printable(str(removal))}")
    if library.decisions:
        OUT.table(
            ("makes", "where", "why", ">CPU cycles", ">with accelerator", ">bytes moved"),
            rows=[
                (step.tensor, step.where, step.reason, step.cpu_cycles, step.accelerator_cycles, step.moved_bytes)
                for step in library.decisions
            ],
        )
        OUT.print("cycles are estimates, in cycles of the CPU")
    rules = _misra(library) if misra else None
    _, page = write_report(library, Path(output or "build") / f"{library.name}-report", rules)
    OUT.print(f"report: {page}")
    _write_results(library, page, rules)


def _write_results(library: Library, page: Path, rules: Sequence[RuleCount] | None) -> None:
    OUT.results(
        {
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
            "weights_in_ram": library.target.weights_in_ram,
            "in_float": [
                {"operator": leftover.operator, "tensor": leftover.tensor, "reason": leftover.reason}
                for leftover in library.leftovers
            ],
            "not_computed": list(library.removals),
            "misra": None if rules is None else {rule.rule: rule.library + rule.runtime for rule in rules},
            "report": str(page),
        }
    )


def _misra(library: Library) -> list[RuleCount]:
    with show_progress("cppcheck of the library") as step:
        ours = library_counts(library)
        step("cppcheck of the runtime")
        runtimes, left = runtime_counts(), reasons().left
    rules = [
        RuleCount(rule, ours.get(rule, 0), runtimes.get(rule, 0), left.get(rule, "no reason is known"))
        for rule in total([ours, runtimes])
    ]
    for rule in rules:
        OUT.print(f"MISRA C:2012 {rule.rule}: {rule.library} in the library, {rule.runtime} in the runtime")
    return rules
