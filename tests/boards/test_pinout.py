# SPDX-License-Identifier: Apache-2.0
"""Pinouts: they agree with the port's own numbers and with what others publish, and ``board.show`` draws them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import inv
from utvm import boards
from utvm.boards.parts import Pinout
from utvm.errors import ConfigError

_CHIPS = [name for name in boards.names() if name != "host"]


def _pinout(name: str) -> Pinout:
    pinout = boards.load(name).pinout
    assert pinout is not None
    return pinout


@pytest.mark.parametrize("name", _CHIPS)
def test_console_has_the_pins_that_the_port_sets_up(name: str) -> None:
    pinout, port = _pinout(name), boards.load(name).port
    numbers = port.numbers if port else {}
    if {"gpio", "pin"} <= numbers.keys():
        # As in stm32_usart.c: ports of pins are 0x400 apart, and the pin after the one that sends receives.
        letter = chr(ord("A") + ((numbers["gpio"] & 0xFFFF) >> 10))
        expected = [f"P{letter}{numbers['pin']}", f"P{letter}{numbers['pin'] + 1}"]
    elif {"pin_txd", "pin_rxd"} <= numbers.keys():
        expected = [f"P0.{numbers['pin_txd']:02}", f"P0.{numbers['pin_rxd']:02}"]
    else:
        return
    assert list(pinout.pins["console"].values()) == expected


# The boards' manuals: UM1974, UM2179, UM2581, and Nordic's guide to the nRF52840 DK.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stm32f746", {"D0": "PG9", "D1": "PG14", "D13": "PA5", "D15": "PB8", "A0": "PA3", "A3": "PF3"}),
        ("nucleo-h743zi", {"D0": "PG9", "D7": "PF13", "A4": "PF5"}),
        ("nucleo-l4r5zi", {"D0": "PD9", "D1": "PD8", "A5": "PC5"}),
        ("nucleo-l552ze-q", {"D0": "PD9", "A1": "PA2", "A5": "PC0"}),
        ("nrf52840dk", {"D0": "P1.01", "D8": "P1.10", "D14": "P0.26", "A2": "P0.28"}),
        ("nrf5340dk", {"D0": "P1.00", "D15": "P1.03", "A5": "P0.26"}),
    ],
)
def test_arduino_connector_agrees_with_the_manual(name: str, expected: dict[str, str]) -> None:
    connector = _pinout(name).connectors["Arduino Uno"]
    pins = {**connector.left, **connector.right}
    assert expected.items() <= pins.items()
    assert list(pins) == [*(f"A{n}" for n in range(6)), *(f"D{n}" for n in reversed(range(16)))]
    assert len(set(pins.values())) == len(pins)


def test_board_show_draws_memory_and_connectors() -> None:
    lines = inv("board.show", "stm32f746", COLUMNS="80").stdout.splitlines()
    assert any(re.fullmatch(r" +│     D15 │ PB8", line) for line in lines)
    assert any(re.fullmatch(r" +PF10 │ A5   D0 │ PG9", line) for line in lines)
    assert "  pins       LEDs: LD1 green PB0, LD2 blue PB7, LD3 red PB14" in lines
    bars = {line.split()[0]: line.count("█") for line in lines if re.search("[█▏▎▍▌▋▊▉]", line)}
    assert list(bars) == ["itcm", "flash-itcm", "flash", "system", "otp", "dtcm", "sram1", "sram2"]
    # 1,024 and 240 KiB.
    assert bars["sram1"] == int(bars["flash"] * 240 / 1024)
    assert next(line for line in lines if line.startswith(" dtcm ")).split()[-1] == "stack"


def test_board_without_connectors_says_so(tmp_path: Path) -> None:
    assert "none; QEMU emulates a logic image" in inv("board.show", "mps2-an385").stdout
    content = json.loads(inv("board.show", "mps2-an385", "--json").stdout)
    assert content["pinout"]["connectors"] == {}
    original = boards.load("mps2-an385").directory / "board.yaml"
    folder = tmp_path / "mine"
    folder.mkdir()
    data = {**yaml.safe_load(original.read_text()), "name": "mine"}
    del data["pinout"]
    (folder / "board.yaml").write_text(yaml.safe_dump(data))
    assert "not described (key pinout, docs/porting.md)" in inv("board.show", folder).stdout


@pytest.mark.parametrize(
    ("pinout", "message"),
    [
        ({"pins": {"LEDs": {"LD1": "PB0"}}}, "source is missing"),
        ({}, "source is missing"),
        ({"source": "UM1", "pins": {"LEDs": {"LD1": "pb0"}}}, "pinout.pins.LEDs.LD1"),
        ({"source": "UM1", "connectors": {"J1": {"top": {"1": "PB0"}}}}, "pinout.connectors.J1.top"),
    ],
)
def test_invalid_pinout_is_refused(pinout: dict[str, Any], message: str, tmp_path: Path) -> None:
    original = boards.load("mps2-an385").directory / "board.yaml"
    data = {**yaml.safe_load(original.read_text()), "name": tmp_path.name.lower(), "pinout": pinout}
    (tmp_path / "board.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=re.escape(message)):
        boards.load(str(tmp_path))
