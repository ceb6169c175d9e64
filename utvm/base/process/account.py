# SPDX-License-Identifier: Apache-2.0
"""Makes up for what an account, or a process that starts us, lacks or has too much of."""

import os
import pwd
import sys
from pathlib import Path

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def prepare_environment() -> None:
    """Open closed standard streams, give a user that passwd does not know a name,
    and send no connection to this computer through a proxy.
    """
    # A closed stream's number would be the next file's.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
            os.dup2(getattr(sys, name).fileno(), number)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        # What getpass.getuser() looks at first, in labgrid too.
        os.environ.setdefault("LOGNAME", f"uid-{os.getuid()}")
    # gRPC looks at the first alone where there is one; it and others know the lower case only, Go's both.
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        hosts = os.environ.get(name, "")
        if name != "no_grpc_proxy" or hosts:
            added = [host for host in _LOOPBACK if host not in hosts.split(",")]
            os.environ[name] = ",".join([hosts, *added] if hosts else added)
