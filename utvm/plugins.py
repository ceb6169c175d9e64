# SPDX-License-Identifier: Apache-2.0
"""What there are several kinds of, each in a file of its own: found in a folder, and among installed packages."""

import importlib
import importlib.metadata
import pkgutil
from types import ModuleType
from typing import Protocol, TypeVar

from utvm.errors import ConfigError


class Named(Protocol):
    """Something of which there is one of a name."""

    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def discover(folder: ModuleType, attribute: str, group: str, kind: type[NamedT]) -> dict[str, NamedT]:
    """Return all of a kind by name.

    Args:
        folder: the package with a module for each of ours.
        attribute: what such a module calls it.
        group: the group of entry points under which an installed package brings further ones.
    """
    own = (
        importlib.import_module(f"{folder.__name__}.{each.name}") for each in pkgutil.iter_modules(folder.__path__)
    )
    known: dict[str, NamedT] = {}
    for one in (getattr(module, attribute) for module in own):
        known[one.name] = one
    for entry in importlib.metadata.entry_points(group=group):
        one = entry.load()
        if not isinstance(one, kind) or one.name in known:
            raise ConfigError(
                f"the entry point {entry.name} ({entry.value}) of {group} brings nothing new",
                f"it names a {kind.__module__}.{kind.__name__} with a name that no other has",
            )
        known[one.name] = one
    return known
