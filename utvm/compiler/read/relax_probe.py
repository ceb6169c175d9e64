# SPDX-License-Identifier: Apache-2.0
"""Reads a Relax module from standard input as TVM's JSON, in bounded memory: damage may end this process."""

import resource
import sys

if __name__ == "__main__":
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import tvm
    from tvm import relax

    module = tvm.ir.load_json(sys.stdin.read())
    assert isinstance(module, tvm.ir.IRModule) and isinstance(module["main"], relax.Function)
    relax.analysis.well_formed(module)
    relax.get_pipeline("zero")(relax.transform.DecomposeOpsForInference()(module))
