# SPDX-License-Identifier: Apache-2.0
"""TVM's own C backend in place of our printer, for a comparison of the same lowered functions."""

import dataclasses
import re
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType, Var

from utvm.compiler import Library, Model
from utvm.compiler.c.helpers import helper_definitions, is_helper
from utvm.compiler.frontend import import_model
from utvm.compiler.memory.graph import extract
from utvm.compiler.schedule.legalize import legalize
from utvm.compiler.schedule.lower import C_TARGET, lower
from utvm.compiler.tvm_types import element_type


def with_stock_operators(model: Model, library: Library, *, rewrite_max_min: bool = True) -> Library:
    """The library with its operators printed by TVM's stock C backend.

        Args:
            rewrite_max_min: turn Max and Min into calls, which the stock backend prints correctly. It stores the
    operands
                of a Max or Min as text, and repeats the text after the memory has changed.
    """
    imported = import_model(model)
    graph = extract(legalize(imported.module), imported.input_names, imported.output_names)
    functions = {name: _with_pointers(body, rewrite_max_min) for name, body in lower(graph.functions).items()}
    module = tvm.IRModule({name: body.with_attr("global_symbol", f"stock_{name}") for name, body in functions.items()})
    source = tvm.get_global_func("target.build.c")(module, C_TARGET).inspect_source()
    wrappers = [_wrapper(library, name, len(body.params)) for name, body in functions.items()]
    text = f'#include "{library.name}_operators.h"\n#include <math.h>\n{_standalone(source)}\n' + "\n".join(wrappers)
    return dataclasses.replace(library, sources={**library.sources, f"{library.name}_operators.c": text})


def _with_pointers(function: Any, rewrite_max_min: bool) -> Any:
    """Turn buffer parameters into pointers, which the stock backend expects."""
    pointers, views = [], []
    for parameter in function.params:
        pointer = tirx.Var(f"{parameter.name}_p", PointerType(parameter.ty.dtype, "global"))
        pointers.append(pointer)
        views.append(tirx.DeclBuffer(parameter, data=pointer))
    body = _without_local_memory(function.body)
    if rewrite_max_min:

        def call(operation: str) -> Any:
            def rewrite(node: Any) -> Any:
                return tirx.call_pure_extern(node.ty, f"{operation}_{node.ty.dtype}", node.a, node.b)

            return rewrite

        body = tvm_ffi.structural_map(body, [(tirx.Max, call("max")), (tirx.Min, call("min"))], order="post")
    body = tirx.SeqStmt([*views, body, tirx.Return(tirx.IntImm("int32", 0))])
    return tirx.PrimFunc(pointers, body, PrimType("int32"), attrs=function.attrs)


def _without_local_memory(body: Any) -> Any:
    """Move sums to global memory: the stock backend supports no other."""
    sums: dict[int, Any] = {}

    def note(node: Any) -> None:
        if node.buffer.scope() == "local":
            sums[hash(node.buffer)] = tirx.decl_buffer(node.buffer.shape, element_type(node.buffer), node.buffer.name)

    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, note), order="pre")
    return tvm_ffi.structural_map(body, (Var, lambda variable: sums.get(hash(variable), variable)), order="post")


def _standalone(source: str) -> str:
    """Remove the dependencies of the stock backend's text on TVM's headers, and add its helpers."""
    source = re.sub(r"^#.*\n", "", source, flags=re.MULTILINE)
    source = re.sub(r"^void\* __tvm_ffi__library_ctx = NULL;\n", "", source, flags=re.MULTILINE)
    source = re.sub(r'extern "C"\n', "", source).replace("TVM_DLL ", "")
    called = sorted({word for word in re.findall(r"\w+", source) if is_helper(word)})
    return "\n".join(helper_definitions(called)) + source


def _wrapper(library: Library, name: str, parameters: int) -> str:
    """A function with our name and parameters that calls a stock function."""
    header = library.sources[f"{library.name}_operators.h"]
    match = re.search(rf"void {library.name}_{name}\(([^)]*)\);", header)
    assert match is not None
    names = [re.findall(r"\w+", parameter)[-1] for parameter in match[1].split(",")]
    unused = "".join(f" (void){extra};" for extra in names[parameters:])
    arguments = ", ".join(f"(void *){item}" for item in names[:parameters])
    return f"void {library.name}_{name}({match[1]})\n{{\n   {unused} stock_{name}({arguments});\n}}\n"
