# SPDX-License-Identifier: Apache-2.0
"""Operators that run other graphs: a C function around the libraries that were made of these."""

from dataclasses import dataclass

from utvm.compiler.c.description import Argument
from utvm.compiler.c.printer import CFunction
from utvm.compiler.c_files import C_TYPES
from utvm.compiler.library import Library, Tensor, item_bytes

_BODIES = {
    "if": """\
    if (condition[0]) {{
        code = {first}_run(inputs, outputs, workspace);
    }} else {{
        code = {second}_run(inputs, outputs, workspace);
    }}
""",
    "while": """\
{begin}
    code = {first}_run(inputs, conditions, workspace);
    while ((code == 0) && *(const bool *)(workspace + {place})) {{
        code = {second}_run(inputs, next, workspace);
{advance}
        if (code == 0) {{
            code = {first}_run(inputs, conditions, workspace);
        }}
    }}
""",
}


@dataclass(frozen=True)
class CalledGraph:
    """A graph that an operator runs."""

    library: Library
    checked: bool


def print_control(
    name: str, kind: str, parts: tuple[CalledGraph, CalledGraph]
) -> tuple[CFunction, list[Argument]]:
    """Print an operator that runs graphs; return it, and what it reads and writes, its workspace left out.

    The graphs share the workspace, which is their arena. What a loop carries from round to round is in the
    operator's results; the next round's lies where the body's arena has room for it.
    """
    first, second = (part.library for part in parts)
    results = second.outputs
    given = [("condition", Tensor("", (), "bool"))] if kind == "if" else []
    given += [(f"input_{number}", tensor) for number, tensor in enumerate(second.inputs)]
    written = [(f"output_{number}", tensor) for number, tensor in enumerate(results)]
    declared = [f"const {C_TYPES[tensor.dtype]} *restrict {label}" for label, tensor in given]
    declared += [f"{C_TYPES[tensor.dtype]} *restrict {label}" for label, tensor in written]
    checked = any(part.checked for part in parts)
    head = f"{'int32_t' if checked else 'void'} {name}("
    prototype = head + "\n    " + ",\n    ".join([*declared, "uint8_t *restrict workspace"]) + ")"
    end = "    return (code != 0) ? 1 : 0;\n" if checked else "    (void)code;\n"
    definition = (
        f"{prototype}\n{{\n{_tables(kind, first, second)}    int32_t code;\n\n{_body(kind, first, second)}{end}}}"
    )
    arguments = [_argument(tensor, False) for _, tensor in given] + [
        _argument(tensor, True) for _, tensor in written
    ]
    size = max(first.arena_bytes, second.arena_bytes)
    headers = (f"{first.name}.h", f"{second.name}.h")
    return CFunction(name, prototype, definition, size, frozenset(), checked, headers=headers), arguments


def _tables(kind: str, first: Library, second: Library) -> str:
    outputs = [f"output_{number}" for number in range(len(second.outputs))]
    if kind == "if":
        inputs = [f"input_{number}" for number in range(len(second.inputs))]
        tables = [("const void *const inputs", inputs or ["condition"]), ("void *const outputs", outputs)]
    else:
        tables = [
            ("const void *const inputs", outputs),
            ("void *const next", [f"workspace + {place.offset}" for place in second.output_places]),
            ("void *const conditions", [f"workspace + {first.output_places[0].offset}"]),
        ]
    return "".join(f"    {declared}[] = {{{', '.join(items)}}};\n" for declared, items in tables)


def _body(kind: str, first: Library, second: Library) -> str:
    copies = [
        (f"output_{number}", f"input_{number}", f"workspace + {place.offset}", tensor.size_bytes)
        for number, (tensor, place) in enumerate(zip(second.outputs, second.output_places, strict=True))
    ]
    return _BODIES[kind].format(
        first=first.name,
        second=second.name,
        place=first.output_places[0].offset,
        begin="\n".join(f"    (void)memcpy({to}, {begin}, {size});" for to, begin, _, size in copies),
        advance="\n".join(f"        (void)memcpy({to}, {after}, {size});" for to, _, after, size in copies),
    )


def _argument(tensor: Tensor, written: bool) -> Argument:
    return Argument(tensor.size_bytes, item_bytes(tensor.dtype), written)
