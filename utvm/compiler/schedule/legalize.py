# SPDX-License-Identifier: Apache-2.0
"""Legalise Relax operators to calls of TIRx functions, with several operators fused into each."""

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr import _update_type

from utvm.compiler import notes, tvm_types
from utvm.compiler.names import UNNAMED
from utvm.compiler.schedule.legalizations import LEGALIZATIONS

CONCATENATION = "utvm.concatenate"
"""Packed function called in place of a concatenation that needs no loop."""


def mark_concatenations(module: Any) -> Any:
    """Replace concatenations of pieces that are adjacent in memory by calls of :data:`CONCATENATION`."""
    main = _Marker(module).visit_expr(module["main"])
    module = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    module.update_func(module.get_global_var("main"), main)
    return module


@relax.expr_functor.mutator
class _Marker(relax.PyExprMutator):  # type: ignore[misc]  # TVM has no types
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if tvm_types.operator_name(call) != "relax.concat" or not _joins_in_memory(call):
            return call
        return relax.op.call_dps_packed(CONCATENATION, call.args[0], call.ty)


def _joins_in_memory(call: Any) -> bool:
    shape = getattr(call.ty, "shape", None)
    if not isinstance(call.args[0], tvm.ir.Tuple) or shape is None:
        return False
    extents = list(shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return False
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(extents)
    return math.prod(int(extent) for extent in extents[:axis]) == 1


def fuse(module: Any) -> Any:
    """Fuse operators as ``relax.transform.FuseOps`` does, and keep the names of the results."""
    fused = relax.transform.FuseOps()(module)
    names = _names(module)
    results = {hash(binding.var): name for binding, name in zip(_bindings(fused), names, strict=True) if name}
    if results:
        renaming = _Renaming(results)
        fused.update_func(fused.get_global_var("main"), renaming.visit_expr(fused["main"]))
    return fused


def _bindings(module: Any) -> list[Any]:
    return [binding for block in module["main"].body.blocks for binding in block.bindings]


def _names(module: Any) -> list[str]:
    copies, makes, does = _apart(module)
    fused = relax.transform.FuseOps()(copies)
    functions = {variable.name_hint: function for variable, function in fused.functions.items()}
    names = []
    for binding in _bindings(fused):
        function = functions.get(getattr(getattr(binding.value, "op", None), "name_hint", ""))
        names.append(_last_name(function.body, makes) if isinstance(function, relax.Function) else "")
        if isinstance(function, relax.Function):
            parts = [does[name] for name in _callees(function.body) if name in does]
            notes.note("fused", f"{' + '.join(parts)}, into {names[-1] or binding.var.name}")
    return names


def _last_name(body: Any, makes: Mapping[str, str]) -> str:
    bindings = [binding for block in body.blocks for binding in block.bindings]
    if not bindings[-1].var.same_as(body.body):
        return ""  # It has several results.
    names = (makes.get(name, "") for name in _callees(body)[::-1])
    return next((name for name in names if name and not UNNAMED.fullmatch(name)), "")


def _callees(body: Any) -> list[str]:
    bindings = [binding for block in body.blocks for binding in block.bindings]
    functions = (next(iter(getattr(binding.value, "args", ())), None) for binding in bindings)
    return [str(getattr(function, "name_hint", "")) for function in functions]


def _apart(module: Any) -> tuple[Any, dict[str, str], dict[str, str]]:
    """Return a copy with a separate function per call, and two tables: each function's result and operator."""
    main = module["main"]
    makes: dict[str, str] = {}
    does: dict[str, str] = {}
    functions = {variable: function for variable, function in module.functions.items() if not function.same_as(main)}
    blocks = []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            call = binding.value
            if tvm_types.operator_name(call) != "relax.call_tir":
                bindings.append(binding)
                continue
            own = tvm.ir.GlobalVar(f"{call.args[0].name_hint}__{len(makes)}")
            _update_type(own, call.args[0].ty)
            functions[own] = module[call.args[0]]
            makes[own.name_hint] = str(binding.var.name)
            does[own.name_hint] = str(call.args[0].name_hint)
            called = tvm.ir.Call(call.op, [own, *call.args[1:]], call.attrs, call.ty_args, ret_ty=call.ty)
            bindings.append(relax.VarBinding(binding.var, called))
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    functions[module.get_global_var("main")] = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return relax.transform.Normalize()(tvm.IRModule(functions)), makes, does


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self._names = names

    def visit_var_binding_(self, binding: Any) -> None:
        name = self._names.get(hash(binding.var))
        if name is None:
            super().visit_var_binding_(binding)
            return
        value = self.visit_expr(binding.value)
        inner = isinstance(binding.var, relax.DataflowVar)
        variable = self.builder_.emit(value, name) if inner else self.builder_.emit_output(value, name)
        self.set_var_remap(binding.var, variable)


def _fold(module: Any) -> Any:
    known: set[int] = set()
    for binding in (binding for block in module["main"].body.blocks for binding in block.bindings):
        call = binding.value
        if tvm_types.operator_name(call) != "relax.call_tir":
            continue
        if all(isinstance(field, tvm.ir.GenericConst) or hash(field) in known for field in call.args[1].fields):
            known.add(hash(binding.var))
            notes.note("folded", f"{binding.var.name} is a constant")
    return relax.transform.FoldConstant()(module)


def legalize(module: Any) -> Any:
    """Turn a Relax module of high-level operators into one of calls to TIRx functions."""
    return tvm.transform.Sequential(
        [
            tvm.transform.module_pass(lambda item, _: mark_concatenations(item), opt_level=0),
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.LegalizeOps(LEGALIZATIONS),
            relax.transform.AnnotateTIROpPattern(),
            tvm.transform.module_pass(lambda item, _: _fold(item), opt_level=0),
            tvm.transform.module_pass(lambda item, _: fuse(item), opt_level=0),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
    )(module)
