# SPDX-License-Identifier: Apache-2.0
"""TVM's RPC tracker for one user of this computer: ``python -m utvm.tuning.tracker [PORT]``.

TVM's own command accepts connections of every user. Its private loop function takes any listening socket
(apache-tvm 0.27).
"""

import argparse

from tvm.rpc import base, tracker

from utvm.base.process.peer import OwnerOnlySocket


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m utvm.tuning.tracker", description="An RPC tracker.")
    parser.add_argument("port", nargs="?", type=int, default=0, help="TCP port of 127.0.0.1 (default: any free one)")
    port: int = parser.parse_args().port
    try:
        listener = OwnerOnlySocket.listen_on("127.0.0.1", port)
    except (OSError, OverflowError) as error:
        parser.error(f"port {port}: {error}")
    with listener:
        print(f"the tracker listens on port {listener.getsockname()[1]}", flush=True)
        tracker._tracker_server(listener, base.random_key("tracker"))


if __name__ == "__main__":
    main()
