# SPDX-License-Identifier: Apache-2.0
"""YAML at the door: read once, checked against a typed record, refused with a message that names the place."""

import contextlib
import functools
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from utvm.base.storage.files import read_text
from utvm.errors import ConfigError

_DEEPEST = 1000


class Record(BaseModel):
    """Base of records that come from a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


RecordT = TypeVar("RecordT", bound=Record)


def load_yaml(path: Path, record: type[RecordT], hint: str = "", **given: object) -> RecordT:
    """Read a YAML file into a record.

    Args:
        given: fields of the record that do not come from the file.
    """
    content, text = read_yaml(path, hint)
    return validate(record, {**content, **given}, str(path), hint, text)


def read_yaml(path: Path, hint: str = "") -> tuple[dict[str, Any], str]:
    """Return what a YAML file holds, which nobody changes, and its text; raises as :func:`load_yaml`."""
    text = read_text(path, hint)
    try:
        content = _parsed(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deeply", hint) from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        # PyYAML lets through what Python says of a date or a number that there is not.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}", hint) from error
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise ConfigError(f"{path}: expected keys and values, found {found}", hint)
    return content, text


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Return what YAML holds, which nobody changes. Raises as PyYAML does."""
    # In C it is quicker by far, but its stack is the machine's: what could be deep goes the long way.
    # A level takes a bracket, or a column.
    depth = text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0)
    if yaml.__with_libyaml__ and depth < _DEEPEST:
        # What is wrong is said in the words of the other one.
        with contextlib.suppress(yaml.YAMLError):
            return _constructed(yaml.CSafeLoader(text))
    return _constructed(yaml.SafeLoader(text))


def _constructed(loader: "yaml.SafeLoader | yaml.CSafeLoader") -> Any:
    """Return what a loader's one document holds, in which no key is twice: PyYAML would take the last one."""
    try:
        node = loader.get_single_node()
        _check_keys(node)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(node: yaml.Node | None) -> None:
    seen, pending = set(), [node]
    while pending:
        at = pending.pop()
        if not isinstance(at, yaml.CollectionNode) or id(at) in seen:
            continue
        seen.add(id(at))
        if not isinstance(at, yaml.MappingNode):
            pending += at.value
            continue
        keys = set()
        for key, value in at.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
            keys.add((key.tag, str(key.value)))
            pending.append(value)


def validate(record: type[RecordT], content: object, where: str, hint: str = "", text: str = "") -> RecordT:
    """Read what a file holds into a record.

    Args:
        where: the file, and the key in it, for the message.
        text: what the file says, so that lines can be named.
    """
    try:
        return record.model_validate(content)
    except ValidationError as error:
        problems = [
            ": ".join(
                part
                for part in (".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, "))
                if part
            )
            + (f" (line {_line(text, problem['loc'])})" if text and problem["loc"] else "")
            for problem in error.errors()
        ]
        raise ConfigError(f"{where}: " + "; ".join(problems), hint) from error


def _line(text: str, keys: tuple[int | str, ...]) -> int:
    """Return the line of a key; where it is missing, that of what it is missing in."""
    node, line = yaml.compose(text), 0
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line
        elif isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(key)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
    return line + 1
