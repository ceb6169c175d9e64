# SPDX-License-Identifier: Apache-2.0
"""TVM's RPC tracker for one user of this computer: ``python -m utvm.tuning.tracker``.

TVM's own command accepts connections of every user. Its tracker's loop is a private function, which takes any
listening socket (apache-tvm 0.27).
"""

from tvm.rpc import base, tracker

from utvm.peer import OwnerOnlySocket


def main() -> None:
    """Serve until the process is ended."""
    with OwnerOnlySocket.listen_on("127.0.0.1", 0) as listener:
        print(f"the tracker listens on port {listener.getsockname()[1]}", flush=True)
        tracker._tracker_server(listener, base.random_key("tracker"))


if __name__ == "__main__":
    main()
