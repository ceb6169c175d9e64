# SPDX-License-Identifier: Apache-2.0
"""MetaSchedule's RPCRunner, unchanged, on modules and a served board: ``stock_runner.py PORT NUMBERS MODULE...``.

Prints a line of JSON: for each module, its seconds or its error.
"""

import json
import sys
import types
from typing import Any


def _without_cuda() -> None:
    # Parsing CUDA's intrinsics takes half a minute, and none of them is used.
    sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))


_without_cuda()


def main(port: int, numbers: int, modules: list[str]) -> None:
    from tvm.s_tir.meta_schedule.arg_info import TensorInfo
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner, RunnerInput

    def connect(config: Any) -> Any:
        from tvm import rpc

        return rpc.connect("127.0.0.1", port, session_timeout=config.session_timeout_sec)

    arguments = [TensorInfo("float32", [numbers])] * 3
    runner = RPCRunner(
        RPCConfig("none", 1, "board", session_timeout_sec=60),
        EvaluatorConfig(number=2, repeat=3, min_repeat_ms=0),
        f_create_session=connect,
        initializer=_without_cuda,
    )
    results = [future.result() for future in runner.run([RunnerInput(module, "cpu", arguments) for module in modules])]
    print(json.dumps([[float(second) for second in run.run_secs or ()] or str(run.error_msg) for run in results]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
