# SPDX-License-Identifier: Apache-2.0
"""Chips as the target files of probe-rs describe them (its manual, "Target description")."""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from utvm.boards.described.chip import Chip, ChipMemory, part_name, units, without_overlaps
from utvm.errors import ConfigError

# They tell the instruction set and no unit for floating point: the smallest core that has it runs on all of them.
_CPUS: Mapping[str, str] = {
    "armv6m": "cortex-m0",
    "armv7m": "cortex-m3",
    "armv7em": "cortex-m4",
    "armv8m": "cortex-m23",
}
_MOST_BYTES = 16 * 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Reads ``!Ram`` and such as the mapping behind it, with the tag's name in it."""


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    content = loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else {}
    return {"tag": tag, **{str(key): value for key, value in content.items()}}


_Loader.add_multi_constructor("!", _tagged)


def read(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what a target file describes, by name."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: is too large for a description of chips")
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())[:200]}") from error
    variants = content.get("variants") if isinstance(content, dict) else None
    if not isinstance(variants, list) or not all(isinstance(one, dict) and "name" in one for one in variants):
        raise ConfigError(
            f"{path}: is no target file of probe-rs", "it has a list of variants, each with its name"
        )
    return {str(one["name"]): functools.partial(_chip, path, content, one) for one in variants}


def _chip(path: Path, family: dict[str, Any], variant: dict[str, Any]) -> Chip:
    name = str(variant["name"])
    try:
        core = variant["cores"][0]
        cpu = _CPUS.get(core["type"])
        if cpu is None:
            raise ConfigError(
                f"{path}: {name}: there is no row for {core['type']}", f"known are {', '.join(_CPUS)}"
            )
        memory = without_overlaps(list(_memory(family, variant, str(core["name"]))))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path}: {name}: is described in part: {error!r}") from error
    return Chip(name, cpu, False, memory, None, f"{path.name} of probe-rs")


def _memory(family: dict[str, Any], variant: dict[str, Any], core: str) -> Iterator[ChipMemory]:
    algorithms = {
        algorithm["name"]: algorithm["flash_properties"] for algorithm in family.get("flash_algorithms") or ()
    }
    known = [algorithms[one] for one in variant.get("flash_algorithms") or () if one in algorithms]
    for number, piece in enumerate(variant["memory_map"]):
        # Older files have the kind as a key of its own, newer ones as a tag.
        kind = piece.get("tag") or next(iter(piece))
        content = piece if "tag" in piece else piece[kind]
        if kind.strip("!") not in ("Ram", "Nvm", "Flash") or core not in content.get("cores", [core]):
            continue
        start, end = int(content["range"]["start"]), int(content["range"]["end"])
        is_flash = kind.strip("!") != "Ram"
        sizes = {
            int(sector["size"])
            for one in known
            if int(one["address_range"]["start"]) <= start < int(one["address_range"]["end"])
            for sector in one["sectors"]
        }
        sector = sizes.pop() if is_flash and len(sizes) == 1 else 0
        said = str(content.get("name") or ("flash" if is_flash else "ram"))
        yield ChipMemory(
            part_name(said, "memory") + (str(number) if number else ""),
            start,
            end - start,
            "flash" if is_flash else "ram",
            sectors=units(end - start, sector),
            first=bool((content.get("access") or {}).get("boot")),
        )
