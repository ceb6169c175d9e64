# SPDX-License-Identifier: Apache-2.0
"""YAML at the door: read once, checked against a typed record, refused with a message that names the place."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from utvm.errors import ConfigError


class Record(BaseModel):
    """Base of records that come from a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


RecordT = TypeVar("RecordT", bound=Record)


def load_yaml(path: Path, record: type[RecordT], hint: str = "", **given: object) -> RecordT:
    """Read a YAML file into a record.

    Args:
        given: fields of the record that do not come from the file.

    Raises:
        ConfigError: the file is missing, is not YAML, or a key is missing, unknown or of the wrong kind.
            The message names the file, the key and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", hint) from error
    try:
        content = yaml.safe_load(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deeply", hint) from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        # PyYAML lets through what Python says of a date or a number that there is not.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}", hint) from error
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise ConfigError(f"{path}: expected keys and values, found {found}", hint)
    return checked(record, {**content, **given}, str(path), hint)


def checked(record: type[RecordT], content: object, where: str, hint: str = "") -> RecordT:
    """Read what a file holds into a record.

    Args:
        where: the file, and the key in it, for the message.

    Raises:
        ConfigError: a key is missing, unknown or of the wrong kind, as :func:`load_yaml`.
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
            for problem in error.errors()
        ]
        raise ConfigError(f"{where}: " + "; ".join(problems), hint) from error
