"""The whole way from a model to a library, without the cache."""

from utvm.compiler.emit import emit
from utvm.compiler.frontend import import_model
from utvm.compiler.graph import extract, legalize
from utvm.compiler.guard import tvm_errors
from utvm.compiler.library import Library
from utvm.compiler.lower import lower
from utvm.compiler.model import Model
from utvm.compiler.names import Scope
from utvm.compiler.plan import plan_memory
from utvm.compiler.printer import print_function


def build_library(model: Model, name: str) -> Library:
    """Compile a model.

    Args:
        name: C identifier that begins every global symbol of the library.

    Raises:
        CompileError: the model cannot be compiled.
    """
    imported = import_model(model)
    with tvm_errors(model.origin, "compile the model"):
        graph = extract(legalize(imported.module), imported.input_names, imported.output_names)
        scope = Scope([f"{name}_run"])
        operators = {
            function: print_function(scope.claim(f"{name}_{function}", name), body)
            for function, body in lower(graph.functions).items()
        }
    workspaces = {function: operator.workspace_bytes for function, operator in operators.items()}
    return emit(name, graph, plan_memory(graph, workspaces), operators)
