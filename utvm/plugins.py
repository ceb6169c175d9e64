# SPDX-License-Identifier: Apache-2.0
"""Finds plug-ins: modules of a folder, and entry points of installed packages."""

import importlib
import importlib.metadata
import pkgutil
from types import ModuleType
from typing import Protocol, TypeVar

from utvm.errors import ConfigError


class Named(Protocol):
    """A plug-in with a unique name."""

    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def discover(folder: ModuleType, attribute: str, group: str, kind: type[NamedT]) -> dict[str, NamedT]:
    """Return all plug-ins of a kind, by name.

    Args:
        folder: the package with a module per built-in plug-in.
        attribute: the variable of each module that holds its plug-in.
        group: entry point group of plug-ins in installed packages.
    """
    own = (importlib.import_module(f"{folder.__name__}.{info.name}") for info in pkgutil.iter_modules(folder.__path__))
    known: dict[str, NamedT] = {}
    for plugin in (getattr(module, attribute) for module in own):
        known[plugin.name] = plugin
    for entry in importlib.metadata.entry_points(group=group):
        plugin = entry.load()
        if not isinstance(plugin, kind) or plugin.name in known:
            raise ConfigError(
                f"the entry point {entry.name} ({entry.value}) of {group} is not a valid plug-in",
                f"it must name a {kind.__module__}.{kind.__name__} with a unique name",
            )
        known[plugin.name] = plugin
    return known
