# SPDX-License-Identifier: Apache-2.0
"""Names and texts of a history's figures."""

import sqlite3

from utvm.errors import ConfigError

Value = int | float | str

LIMITED = {"instructions": "instructions", "flash": "flash_bytes", "ram": "ram_bytes", "ms": "ms"}
"""Limits of ``utvm.yaml`` and their figures; all but ms may be relative."""


def figure_of(history: sqlite3.Connection, model: str, name: str) -> str:
    """Return the figure of a model with a name from reports or limits.

    Raises:
        ConfigError: the model has no such figure.
    """
    rows = history.execute("select distinct figure from series where model = ? order by 1", (model,))
    known = [row["figure"] for row in rows]
    figure = LIMITED.get(name, name)
    if figure in known:
        return figure
    if known:
        raise ConfigError(f"{model} has no figure {name!r}", f"its figures: {', '.join(known)}")
    raise unknown_model(history, model)


def unknown_model(history: sqlite3.Connection, model: str, board: str = "") -> ConfigError:
    """Return the error for a model without figures, or without any on a board."""
    known = ", ".join(row[0] for row in history.execute("select distinct model from series order by 1"))
    place = f" on {board}" if board else ""
    hint = f"choose one of its models: {known or 'none'}"
    return ConfigError(f"the history has no figures of {model}{place}", hint)


def format_value(figure: str, value: Value) -> str:
    """Format a value as reports do: ``98.75 %`` for an accuracy, ``1,000`` for a count."""
    if isinstance(value, str):
        return value
    return f"{100 * value:.2f} %" if figure == "accuracy" else f"{value:,}"


def format_difference(figure: str, was: Value, now: Value) -> str:
    """Format the difference of two numbers, ``+12 (+0.10 %)``; empty for texts."""
    if isinstance(was, str) or isinstance(now, str):
        return ""
    difference = now - was
    if figure == "accuracy":
        return f"{100 * difference:+.2f} points"
    fraction = f" ({100 * difference / was:+.2f} %)" if was else ""
    return (f"{difference:+,}" if isinstance(difference, int) else f"{difference:+.4g}") + fraction
