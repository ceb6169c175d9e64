# SPDX-License-Identifier: Apache-2.0
"""benchmarks/README.md has no figure of its own: it is what the benchmarks have written."""

import json
import re

from benchmarks import seen, silicon


def test_the_page_is_made_of_what_was_seen() -> None:
    assert seen.PAGE.read_text(encoding="utf-8") == seen.page(), "run .venv/bin/python -m benchmarks.seen"


def test_benchmarks_with_figures_are_on_the_page() -> None:
    kept = set()
    for path in seen.PAGE.parent.glob("*.py"):
        if found := re.search(r"seen\.keep\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")):
            assert found[1] == path.stem
            kept.add(found[1])
            assert f"| `{path.name}` |" in seen.page()
    assert kept == {path.stem for path in seen.FOLDER.glob("*.json")}


def test_the_digits_are_those_of_the_boards() -> None:
    digits = json.loads((seen.FOLDER / "digits.json").read_text())["figures"]
    models = json.loads((seen.PAGE.parent / "boards.json").read_text())["boards"]["stm32f746"]["models"]
    by_name = {model["name"]: model["figures"] for model in models}
    for ours, theirs in ((digits["float"], by_name["digits"]), (digits["int8"], by_name["digits_int8"])):
        assert ours == {name: theirs[name] for name in ours}


def test_errors_of_the_cycle_model_are_on_its_page() -> None:
    rows = json.loads((seen.FOLDER / "silicon.json").read_text())["figures"]["rows"]
    assert silicon.table_of(rows) in silicon.PAGE.read_text(encoding="utf-8")
    assert silicon.picture_of(rows) == silicon.PICTURE.read_text(encoding="utf-8")
    # The page says of the other rows what is known to differ from the chip, and shows their errors.
    errors = sorted(abs(silicon.error_of(row)) for row in rows if not row["unlike"])
    assert errors[-1] < 20 and errors[len(errors) * 4 // 5 - 1] <= 10
