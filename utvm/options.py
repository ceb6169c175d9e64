# SPDX-License-Identifier: Apache-2.0
"""Options that are defined once.

Related options are fields of a frozen dataclass, described by :func:`option` and :func:`switches`:

- :func:`parameters`, :func:`helps`, :func:`optional` and :func:`repeatable`: Invoke's options;
- :func:`add_to_pytest`: pytest's options;
- :func:`build_record`: the record, from values parsed by Invoke or pytest;
- :func:`words` and :func:`parts`: the same options as a command line, here or in another location.

A record read from a file, such as an entry of the nightly list, inherits the dataclass.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from utvm.errors import ConfigError

ChoiceT = TypeVar("ChoiceT")
Parts = tuple[str | Path, ...]


def option(
    default: Any,
    help: str,  # noqa: A002
    *,
    bare: Any = None,
    spelled: Callable[[str], Parts] | None = None,
    required: bool = False,
    **metadata: Any,
) -> Any:
    """Describe a field that is one option. A default of None means not given; a tuple default makes it repeatable.

    Args:
        help: text of ``--help``.
        required: must be given; its value may be given without the option's name.
        bare: value of the option without a value; None if a value is required.
        spelled: splits a value around its paths, which are translated for another location.
    """
    metadata |= {"help": help, "bare": bare, "spelled": spelled, "required": required}
    return dataclasses.field(default=default, metadata=metadata)


def switches(default: str, **helps: str) -> Any:
    """Describe a field with a fixed set of values; each except the default has a flag of its own."""
    return dataclasses.field(default=default, metadata={"switches": helps})


@dataclass(frozen=True)
class _Option:
    """One option of a command line; for a switch, ``sets`` is the value it gives its field."""

    name: str
    field: "dataclasses.Field[Any]"
    kind: type
    help: str
    sets: str | None = None

    @property
    def flag(self) -> str:
        return ("-" if len(self.name) == 1 else "--") + self.name.rstrip("_").replace("_", "-")

    @property
    def bare(self) -> Any:
        return self.field.metadata.get("bare")

    @property
    def required(self) -> bool:
        return bool(self.field.metadata.get("required"))

    @property
    def unset(self) -> Any:
        """Parsed value of an option that was not given."""
        if self.sets is not None:
            return False
        if self.bare is not None or self.kind is tuple:
            return None
        return "" if self.field.default is None else self.field.default

    def value(self, text: object) -> Any:
        """Convert a parsed value to the field's type."""
        if text in (self.unset, []):
            return self.field.default
        if text is True and self.bare is not None:
            return self.bare
        with ConfigError.on(ValueError, f"{self.flag} {text!r} is not a number", f"{self.flag}: {self.help}"):
            return self.kind(text)

    def spell(self, record: object) -> Iterator[Parts]:
        """Yield the option for a command line, in parts; nothing if its value is the default."""
        value = getattr(record, self.field.name)
        if value is True or (self.sets and value == self.sets):
            yield (self.flag,)
        elif not self.sets and value != self.field.default:
            split = self.field.metadata["spelled"] or (lambda item: (str(item),))
            for item in value if self.kind is tuple else (value,):
                yield (f"{self.flag}=", *split(item))


def parameters(choice: type) -> list[inspect.Parameter]:
    """Return the function parameters of the options, as Invoke reads them."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(item.name, kind, default=inspect.Parameter.empty if item.required else item.unset)
        for item in _options(choice)
    ]


def helps(choice: type) -> dict[str, str]:
    return {item.name: item.help for item in _options(choice)}


def optional(choice: type) -> list[str]:
    return [item.name for item in _options(choice) if item.bare is not None]


def repeatable(choice: type) -> list[str]:
    return [item.name for item in _options(choice) if item.kind is tuple]


def add_to_pytest(add: Callable[..., None], choice: type) -> None:
    """Add the options to pytest by ``addoption`` of a parser or group."""
    for item in _options(choice):
        text = item.help.replace("%", "%%")
        if item.unset is False:
            add(item.flag, dest=item.name, action="store_true", help=text)
        elif item.bare is not None:
            add(item.flag, dest=item.name, nargs="?", const=True, default=None, help=text)
        else:
            add(item.flag, dest=item.name, default=item.unset, help=text)


def build_record(choice: type[ChoiceT], entries: Mapping[str, object]) -> ChoiceT:
    """Build the record from values parsed by Invoke or pytest; extra values are ignored."""
    values: dict[str, Any] = {}
    switches: dict[str, str] = {}
    for item in _options(choice):
        if item.sets is None:
            values[item.field.name] = item.value(entries.get(item.name, item.unset))
        elif entries.get(item.name):
            if other := switches.get(item.field.name):
                raise ConfigError(f"{other} and {item.flag} exclude each other", "give one, or neither")
            switches[item.field.name] = item.flag
            values[item.field.name] = item.sets
    return choice(**values)


def narrow(choice: type[ChoiceT], record: object) -> ChoiceT:
    """Build the record from a larger one that has the same fields."""
    fields = dataclasses.fields(typing.cast(Any, choice))
    return choice(**{field.name: getattr(record, field.name) for field in fields})


def parts(record: object) -> tuple[Parts, ...]:
    """Return the options for a command line, each in parts; paths of this computer are ``Path``."""
    return tuple(part for item in _options(type(record)) for part in item.spell(record))


def words(record: object) -> list[str]:
    """Return the options for a command line on this computer."""
    return ["".join(map(str, word)) for word in parts(record)]


def _options(choice: type) -> Iterator[_Option]:
    hints = typing.get_type_hints(choice)
    for field in dataclasses.fields(typing.cast(Any, choice)):
        if texts := field.metadata.get("switches"):
            for name, text in texts.items():
                yield _Option(name, field, bool, text, sets=name)
        elif text := field.metadata.get("help"):
            yield _Option(field.name, field, _kind(hints[field.name]), text)


def _kind(hint: Any) -> type:
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in hint.__args__ if kind is not types.NoneType)
    return typing.cast(type, typing.get_origin(hint) or hint)
