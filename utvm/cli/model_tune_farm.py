# SPDX-License-Identifier: Apache-2.0
"""``model.tune --in farm --count``: the search runs here and measures on several leased boards at once."""

import contextlib
import dataclasses
import os
import secrets

from utvm import boards
from utvm.base.process import service
from utvm.base.process.interpreter import python_command
from utvm.base.text.quoting import printable
from utvm.boards import PATH_VARIABLE
from utvm.cli.choices import CountingChoice, TuneChoice
from utvm.cli.model_tune import tune_model
from utvm.cli.output import OUT, logs_of
from utvm.environment.remote import RemoteCommand
from utvm.errors import ConfigError, ProvisionError
from utvm.farm.serving import ServedBoards
from utvm.options import parts
from utvm.selection import BoardFolders, FarmChoice

_SERVED = "models/digits/digits_int8.tflite"
"""Any model will do: candidates are uploaded."""

_TRACKER_READY = r"^the tracker listens on port (\d+)"


def tune_together(there: FarmChoice, asked: TuneChoice, where: CountingChoice) -> None:
    """Lease boards, serve each at its host to an own tracker, tune on all of them, and return them."""
    if asked.tracker or where.wait_states:
        raise ConfigError("--count has a tracker of its own, and boards count as they do", "leave the others out")
    board = boards.load(where.board)
    key = f"{board.name}-{secrets.token_hex(4)}"
    plain = dataclasses.replace(where, kind="auto", serial="", wait=0.0, wait_states=False)

    def serve_command(own: int, tracker: str, near: int) -> RemoteCommand:
        words = [("board.serve",), (f"--model={_SERVED}",), *parts(plain), (f"--port={own}",)]
        words += [(f"--tracker={tracker}",), (f"--announce={near}",), (f"--key={key}",)]
        return RemoteCommand((*words, *parts(BoardFolders(os.environ.get(PATH_VARIABLE, "")))), board, where)

    command = python_command("utvm.tuning.tracker")
    log = logs_of("model.tune") / "tracker.log"
    with contextlib.ExitStack() as stack:
        tracker = service.Service("the tracker", command, log=log, health=_TRACKER_READY, error=ProvisionError)
        stack.enter_context(tracker)
        assert tracker.health_match
        port = int(tracker.health_match[1])
        say = lambda line: OUT.print(printable(line)) if line else None  # noqa: E731
        served = stack.enter_context(ServedBoards(there, serve_command, port, asked.count, say))
        # TVM takes seconds to import.
        from utvm.tuning.measure import count_boards_at

        served.wait(lambda: count_boards_at(("127.0.0.1", port), key))
        tune_model(dataclasses.replace(asked, tracker=f"127.0.0.1:{port}/{key}", count=1), where)
