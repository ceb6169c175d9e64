# SPDX-License-Identifier: Apache-2.0
"""The project on a board: it builds, starts, and gives the same outputs as the model on a computer.

./inv project.run runs this suite; see docs/projects.md of utvm.
"""

from pathlib import Path
from typing import Any

from utvm.project import Project, differences


def test_it_reports_what_it_should(board: Any, record_model: Any) -> None:
    project = Project(Path(__file__).parents[1])
    image = project.build(board.board)
    result = project.listen(board, image)
    record_model(image.libraries[0].name, image, [result], executor="standing alone")
    if expected := project.expected():
        assert differences(result, expected) == []
