# SPDX-License-Identifier: Apache-2.0
"""Options that are written once.

Options that belong together are the fields of one frozen dataclass; :func:`option` and :func:`switches` say what a
field's name and type do not. From the dataclass is made what each reader of options wants:

- :func:`parameters`, :func:`helps` and :func:`optional`: Invoke's options;
- :func:`add_to_pytest`: pytest's options;
- :func:`made`: the record, out of what either of them has read;
- :func:`words` and :func:`parts`: the options of a command line that says the same, here or in another place.

A record that is read from a file, as an entry of the nightly list is, inherits the dataclass.
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
) -> Any:
    """Describe a field that is one option. Where the default is None, the option was not given.

    Args:
        help: what ``--help`` says of it.
        required: whether a command cannot do without; its value may stand there without the option's name.
        bare: what the option means without a value; None where it must have one.
        spelled: takes a value apart where a folder of this computer is in it, which another place calls otherwise.
    """
    return dataclasses.field(
        default=default, metadata={"help": help, "bare": bare, "spelled": spelled, "required": required}
    )


def switches(default: str, **helps: str) -> Any:
    """Describe a field that is one of several words, each of which but the default's is an option without a value.

    Args:
        helps: what ``--help`` says of each.
    """
    return dataclasses.field(default=default, metadata={"switches": helps})


@dataclass(frozen=True)
class _Option:
    """One option as a command line knows it.

    Attributes:
        name: as Python spells it.
        field: what it sets, and ``sets`` to which value where it is one of several switches.
        kind: the type of its value.
    """

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
        """What a reader of options holds where it was not given."""
        if self.sets is not None:
            return False
        if self.bare is not None:
            return None
        return "" if self.field.default is None else self.field.default

    def value(self, given: object) -> Any:
        """Return what a reader of options holds as a value of the field."""
        if given == self.unset:
            return self.field.default
        if given is True and self.bare is not None:
            return self.bare
        try:
            return self.kind(given)
        except ValueError:
            raise ConfigError(f"{self.flag} {given!r} is no number") from None

    def spelled(self, record: object) -> Parts:
        """Return the option that says what a record has, in parts; none where it need not be said."""
        value = getattr(record, self.field.name)
        if self.sets is not None:
            return (self.flag,) if value == self.sets else ()
        if value == self.field.default:
            return ()
        if value is True:
            return (self.flag,)
        apart = self.field.metadata["spelled"]
        return (f"{self.flag}=", *(apart(value) if apart else (str(value),)))


def parameters(choice: type) -> list[inspect.Parameter]:
    """Return the parameters by which a function takes the options, as Invoke reads them."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(each.name, kind, default=inspect.Parameter.empty if each.required else each.unset)
        for each in _options(choice)
    ]


def helps(choice: type) -> dict[str, str]:
    """Return what ``--help`` says of each option."""
    return {each.name: each.help for each in _options(choice)}


def optional(choice: type) -> list[str]:
    """Return the options whose value may be left out."""
    return [each.name for each in _options(choice) if each.bare is not None]


def add_to_pytest(add: Callable[..., None], choice: type) -> None:
    """Add the options to pytest's.

    Args:
        add: ``addoption`` of a parser or of a group of one.
    """
    for each in _options(choice):
        told = each.help.replace("%", "%%")
        if each.unset is False:
            add(each.flag, dest=each.name, action="store_true", help=told)
        elif each.bare is not None:
            add(each.flag, dest=each.name, nargs="?", const=True, default=None, help=told)
        else:
            add(each.flag, dest=each.name, default=each.unset, help=told)


def build_record(choice: type[ChoiceT], given: Mapping[str, object]) -> ChoiceT:
    """Make the record out of what Invoke or pytest has read.

    Args:
        given: values by the names of :func:`parameters`; there may be others among them.
    """
    values: dict[str, Any] = {}
    chosen: dict[str, str] = {}
    for each in _options(choice):
        if each.sets is None:
            values[each.field.name] = each.value(given.get(each.name, each.unset))
        elif given.get(each.name):
            if other := chosen.get(each.field.name):
                raise ConfigError(f"{other} and {each.flag} exclude each other", "give one, or neither")
            chosen[each.field.name] = each.flag
            values[each.field.name] = each.sets
    return choice(**values)


def narrow(choice: type[ChoiceT], record: object) -> ChoiceT:
    """Make the record of a larger one that has its fields too."""
    fields = dataclasses.fields(typing.cast(Any, choice))
    return choice(**{field.name: getattr(record, field.name) for field in fields})


def parts(record: object) -> tuple[Parts, ...]:
    """Return the options that say the same, each in parts: folders of this computer are paths among them."""
    spelled = (each.spelled(record) for each in _options(type(record)))
    return tuple(word for word in spelled if word)


def words(record: object) -> list[str]:
    """Return the options that say the same on this computer."""
    return ["".join(map(str, word)) for word in parts(record)]


def _options(choice: type) -> Iterator[_Option]:
    """Go through the options that a dataclass describes."""
    hints = typing.get_type_hints(choice)
    for field in dataclasses.fields(typing.cast(Any, choice)):
        if told := field.metadata.get("switches"):
            for name, text in told.items():
                yield _Option(name, field, bool, text, sets=name)
        else:
            yield _Option(field.name, field, _kind(hints[field.name]), field.metadata["help"])


def _kind(hint: Any) -> type:
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in hint.__args__ if each is not types.NoneType)
    return typing.cast(type, hint)
