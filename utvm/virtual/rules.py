# SPDX-License-Identifier: Apache-2.0
"""Peripherals whose models are data: fields of registers, and rules for accesses (see ``rules.yaml``)."""

import functools
import random
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from utvm.base.storage.config import read_yaml
from utvm.virtual import nordic_events, spec
from utvm.virtual.bus import Device, PlainRegisters, ResetCause
from utvm.virtual.stm32.clocks import LSE, LSI, rates_on
from utvm.virtual.wiring import DeviceFactory, Wiring, after_reset

MODELS: Mapping[str, Mapping[str, Any]] = read_yaml(Path(__file__).with_suffix(".yaml"))[0]
_FIELD = re.compile(r"([0-9a-f]+)(?:\.(\d+)(?:-(\d+))?)?")
_RULE = re.compile(r"(\w+)(?: ([\w.]+))?(?: if ([^:]+))?: (.+)")
_terms = functools.cache(re.compile(r"(!?)([\w.]+)(?:([=>])(\w+))?").findall)
_assignment = functools.cache(re.compile(r"([\w.]+)([-+]?=)(.+)").fullmatch)


class Rules(PlainRegisters):
    """Registers with the behaviour of a model of ``rules.yaml``. A wire is a device behind a serial master."""

    def __init__(self, model: str, wiring: Wiring, *registers: Any) -> None:
        self._data, self._wiring = MODELS[model], wiring
        self._fields: dict[str, tuple[int, int, int] | None] = {}
        self._heard: set[tuple[str, int]] = set()
        self._rules: dict[tuple[str, str | int], list[tuple[str, list[str]]]] = {}
        for rule in self._data["rules"]:
            event, what, condition, actions = _RULE.fullmatch(rule).groups()  # type: ignore[union-attr]
            place = self._offset(what) if event in ("write", "read", "task") else what or ""
            self._rules.setdefault((event, place), []).append((condition or "", actions.split(", ")))
            if event == "signal":
                wiring.signals.listen(what, functools.partial(self._hear_signal, what))
        wiring.signals.listen(wiring.name, lambda level: None)
        super().__init__(*registers)

    def reset(self) -> None:
        super().reset()
        self._state: dict[str, int] = {}
        self._fifo: list[int] = []
        self._noise, self._wire = random.Random(0), self._wiring.name
        self._due: int | None = None
        for name, value in self._data.get("reset", {}).items():
            self._put(name, value)
        self._settle()

    def _field(self, name: str) -> tuple[int, int, int] | None:
        if name not in self._fields:
            match = _FIELD.fullmatch(self._data.get("fields", {}).get(name, name))
            first, last = (int(match[2] or 0), int(match[3] or match[2] or 31)) if match else (0, 0)
            self._fields[name] = (int(match[1], 16), first, (1 << last - first + 1) - 1) if match else None
        return self._fields[name]

    def _offset(self, name: str) -> int:
        return (self._field(name) or (-1,))[0]

    def _get(self, name: str) -> int:
        """Value of a number, field or variable, or a new byte or number."""
        if name[0].isdigit():
            return int(name, 0)
        if name in ("receive", "random"):
            return self._wiring.signals.receive(self._wire) if name == "receive" else self._noise.getrandbits(32)
        field = self._field(name)
        return self.values.get(field[0], 0) >> field[1] & field[2] if field else self._state.get(name, 0)

    def _put(self, name: str, value: int) -> None:
        field = self._field(name)
        if field is None:
            self._state[name] = value
        else:
            old, (offset, shift, mask) = self.values.get(field[0], 0), field
            self.values[offset] = old & ~(mask << shift) | (value & mask) << shift

    def _holds(self, condition: str) -> bool:
        for sign, name, relation, other in _terms(condition):
            value, limit = self._get(name), self._get(other or "0")
            if (value == limit if relation == "=" else value > limit) is bool(sign):
                return False
        return True

    def run(self, event: str, what: str | int = "") -> None:
        """Apply the first rule for an event whose conditions hold."""
        for condition, actions in self._rules.get((event, what), ()):
            if self._holds(condition):
                for action in actions:
                    self._act(action)
                break

    def _hear_signal(self, signal: str, _level: bool | None) -> None:
        self.run("signal", signal)
        self._settle()

    def _act(self, action: str) -> None:
        if match := _assignment(action):
            name, kind, text = match.groups()
            value = self._get(text)
            self._put(name, value if kind == "=" else self._get(name) + (value if kind == "+=" else -value))
            return
        verb, *names = action.split()
        if verb == "run":
            self.run(verb, names[0])
        elif verb == "pulse":
            self._wiring.signals.set(names[0], None)
        else:
            self._do(verb, names, [self._get(name) for name in names])

    def _hear(self, name: str, event: int, level: bool | None) -> None:
        if self._get(name) == event:
            self.run("heard", name)

    def _do(self, verb: str, names: list[str], values: list[int]) -> None:
        signals, bus = self._wiring.signals, self._wiring.bus
        if verb == "select":  # a device on the bus by its address
            self._wire = f"{self._wiring.name}.{values[0]:02x}"
            self._state["ACK"] = int(self._wire in signals.wires)
        elif verb in ("send", "exchange"):
            signals.send(self._wire, values[0])
            if verb == "exchange":
                reply, full = signals.receive(self._wire), len(self._fifo) == self._data["depth"]
                self._fifo += [] if full else [reply]
                self._put("OVR", self._get("OVR") | full)
        elif verb in ("pop", "flush"):
            self._fifo = self._fifo[1:] if verb == "pop" else []
        elif verb == "wait":
            rates = rates_on(bus)  # LFCLK is Nordic's, whose core has 64 MHz
            ticks = {"LFCLK": 64_000_000 / LSE, "LSI": rates.core / LSI, "APB1": rates.apb1, "APB2": rates.apb2}[
                names[-1]
            ]
            self._due = self._wiring.clock.now() + int(prod(values[:-1]) * ticks)
            self._wiring.clock.reschedule()
        elif verb == "hear" and (names[0], values[0]) not in self._heard:
            self._heard.add((names[0], values[0]))
            signals.listen(f"@{values[0]:x}", functools.partial(self._hear, names[0], values[0]))
        elif verb == "poke" and values[0]:
            bus.write(values[0], (1).to_bytes(4, "little"))
        elif verb == "bite":
            self._wiring.request_reset(ResetCause[names[0]])
        elif verb == "fill":
            bus.write(values[0], values[2].to_bytes(2, "little") * values[1])
        elif verb == "transfer":
            source, sends, target, receives, both = values
            for data in bus.read(source, sends) if sends else b"":
                signals.send(self._wire, data)
            replies = bytes(self._get("receive") for _ in range(max(sends * both, receives)))
            bus.write(target, replies[:receives]) if receives else None
        first, second, *_ = *self._fifo, 0, 0
        self._state |= {"LEVEL": len(self._fifo), "FIRST": first, "SECOND": second}

    def _settle(self) -> None:
        """Drive interrupt lines and requests."""
        lines = self._wiring.lines or (self._wiring.set_line,)
        for set_line, conditions in zip(lines, self._data.get("lines", ()), strict=False):
            set_line(any(map(self._holds, conditions)))
        for name, condition in self._data.get("signals", {}).items():
            self._wiring.signals.set(name.replace("NAME", self._wiring.name), self._holds(condition))

    def read(self, offset: int, size: int) -> int:
        self.expire()
        self._state["SIZE"], value = size, super().read(offset, size)
        self.run("read", offset & ~3)
        self._settle()
        return value

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if offset & ~3 not in map(self._offset, self._data.get("fixed", ())):
            super().write_by_software(offset, size, value)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        old, self._state["SIZE"] = self.values.get(offset, 0), lanes.bit_count() // 8
        for name, rule in self._data.get("kinds", {}).items():
            if offset == self._offset(name) and rule in ("zeros", *range(256)):
                value = value & old if rule == "zeros" else value | old & rule
            elif offset == self._offset(name):
                other = self._get(rule.removeprefix("+"))
                self._put(rule.removeprefix("+"), other | value if rule[0] == "+" else other & ~value)
                value = self.values.get(offset, 0)
        super().store(offset, value, lanes)
        self.run("write", offset)
        self._settle()

    def next_event(self) -> int | None:
        return self._due

    def expire(self) -> None:
        if self._due is not None and self._due <= self._wiring.clock.now():
            self._due = None
            self.run("time")
            self._settle()


class RuledEvents(Rules, nordic_events.Events):
    """A peripheral of Nordic's."""

    def _put(self, name: str, value: int) -> None:
        offset = self._offset(name)
        if value and offset in nordic_events.EVENTS:
            self.raise_event(offset)
        else:
            super()._put(name, value)

    def start_task(self, offset: int) -> None:
        self.run("task", offset)

    def _settle(self) -> None:
        self._drive_line()


def _make(model: str, peripheral: spec.Peripheral, wiring: Wiring) -> Device:
    if "nrf" in model:
        return RuledEvents(model, wiring, wiring, peripheral.address)
    return Rules(model, wiring, after_reset(peripheral))


FACTORIES: Mapping[str, DeviceFactory] = {model: functools.partial(_make, model) for model in MODELS}
