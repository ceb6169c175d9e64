# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files into typed records; messages name file, key and line."""

import contextlib
import datetime
import functools
import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from yaml.constructor import SafeConstructor

from utvm.base.storage.files import read_text
from utvm.base.text.quoting import printable
from utvm.errors import ConfigError

_MAX_DEPTH = 1000
# Invalid in paths, files and command lines.
_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")


class Record(BaseModel):
    """Base of records read from a file: frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


RecordT = TypeVar("RecordT", bound=Record)


def load_yaml(path: Path, record: type[RecordT], hint: str = "", **values: object) -> RecordT:
    """Read a YAML file into a record.

    Args:
        values: fields of the record that do not come from the file.
    """
    content, text = read_yaml(path, hint)
    return validate(record, {**content, **values}, str(path), hint, text)


def read_yaml(path: Path, hint: str = "") -> tuple[dict[str, Any], str]:
    """Read a YAML file; return its content, which must not be changed, and its text."""
    text = read_text(path, hint)
    try:
        content = _parse_yaml(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deeply", hint) from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        # PyYAML passes on Python's errors for invalid dates and numbers.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}", hint) from error
    if not isinstance(content, dict):
        kind = "nothing" if content is None else type(content).__name__
        raise ConfigError(f"{path}: expected keys and values, found {kind}", hint)
    return content, text


@functools.lru_cache(maxsize=64)
def _parse_yaml(text: str) -> Any:
    node = _compose(text)
    _check_nodes(node)
    return None if node is None else SafeConstructor().construct_document(node)


def _compose(text: str) -> yaml.Node | None:
    # The C parser is much faster, but deep nesting would overflow its stack. Each level takes a bracket or a
    # column.
    depth = text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0)
    if yaml.__with_libyaml__ and depth < _MAX_DEPTH:
        # Errors are reported by the Python parser, below.
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, yaml.CSafeLoader)
    return yaml.compose(text, yaml.SafeLoader)


def _check_nodes(node: yaml.Node | None) -> None:
    visited, pending = set(), [node]
    while pending:
        current = pending.pop()
        if isinstance(current, yaml.ScalarNode) and (bad := _INVALID_TEXT.search(current.value)):
            raise ValueError(f"line {current.start_mark.line + 1}: text cannot contain {printable(bad[0])}")
        if not isinstance(current, yaml.CollectionNode) or id(current) in visited:
            continue
        visited.add(id(current))
        if not isinstance(current, yaml.MappingNode):
            pending += current.value
            continue
        keys = set()
        for key, value in current.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} occurs twice")
            keys.add((key.tag, str(key.value)))
            pending += key, value


def validate(record: type[RecordT], content: object, where: str, hint: str = "", text: str = "") -> RecordT:
    """Validate the content of a file as a record.

    Args:
        where: the file, and the key in it, for the message.
        text: the whole file, for line numbers.
    """
    try:
        return record.model_validate(content)
    except ValidationError as error:
        problems = [
            ": ".join(part for part in (".".join(map(str, problem["loc"])), _describe(problem)) if part)
            + (f" (line {_line(text, problem['loc'])})" if text and problem["loc"] else "")
            for problem in error.errors()
        ]
        raise ConfigError(f"{where}: " + "; ".join(problems), hint) from error


def _describe(problem: ErrorDetails) -> str:
    value = problem["input"]
    if problem["type"] == "string_type" and isinstance(value, int | float | datetime.date):
        return f"{value} is not a string in YAML: put it in quotes"
    return problem["msg"].removeprefix("Value error, ")


def _line(text: str, keys: tuple[int | str, ...]) -> int:
    node, line = yaml.compose(text), 0
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line
        elif isinstance(node, yaml.MappingNode):
            match = next((pair for pair in node.value if pair[0].value == str(key)), None)
            if match is None:
                break
            line, node = match[0].start_mark.line, match[1]
    return line + 1
