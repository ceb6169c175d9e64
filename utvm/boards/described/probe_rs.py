# SPDX-License-Identifier: Apache-2.0
"""Target files of probe-rs (its manual, "Target description")."""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from utvm.boards.described.chip import CORES, Chip, ChipMemory, memory_name, split_sectors, without_overlaps
from utvm.errors import ConfigError

_MOST_BYTES = 16 * 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Reads a tagged mapping, such as ``!Ram``, as a mapping with the key ``tag``."""


def _construct_tag(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    content = loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else {}
    return {"tag": tag, **{str(key): value for key, value in content.items()}}


_Loader.add_multi_constructor("!", _construct_tag)


def read(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """A reader for each chip of a target file, by name."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: is too large for a description of chips")
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())[:200]}") from error
    variants = content.get("variants") if isinstance(content, dict) else None
    if not isinstance(variants, list) or not all(isinstance(row, dict) and "name" in row for row in variants):
        raise ConfigError(
            f"{path}: is not a target file of probe-rs", "give one with a list of variants, each with its name"
        )
    return {str(variant["name"]): functools.partial(_chip, path, content, variant) for variant in variants}


def _chip(path: Path, family: dict[str, Any], variant: dict[str, Any]) -> Chip:
    name = str(variant["name"])
    try:
        core = variant["cores"][0]
        cpu = CORES["sets"].get(core["type"])
        if cpu is None:
            raise ConfigError(
                f"{path}: {name}: there is no row for {core['type']}", f"supported are {', '.join(CORES['sets'])}"
            )
        memory = without_overlaps(_memory(family, variant, str(core["name"])))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path}: {name}: the description is incomplete: {error!r}") from error
    return Chip(name, cpu, False, memory, None, f"{path.name} of probe-rs")


def _memory(family: dict[str, Any], variant: dict[str, Any], core: str) -> Iterator[ChipMemory]:
    algorithms = {row["name"]: row["flash_properties"] for row in family.get("flash_algorithms") or ()}
    known = [algorithms[name] for name in variant.get("flash_algorithms") or () if name in algorithms]
    for number, piece in enumerate(variant["memory_map"]):
        # The kind is a tag; in older files, it is the only key.
        kind = piece.get("tag") or next(iter(piece))
        content = piece if "tag" in piece else piece[kind]
        if kind.strip("!") not in ("Ram", "Nvm", "Flash") or core not in content.get("cores", [core]):
            continue
        start, end = int(content["range"]["start"]), int(content["range"]["end"])
        is_flash = kind.strip("!") != "Ram"
        sizes = {
            int(sector["size"])
            for algorithm in known
            if int(algorithm["address_range"]["start"]) <= start < int(algorithm["address_range"]["end"])
            for sector in algorithm["sectors"]
        }
        sector = sizes.pop() if is_flash and len(sizes) == 1 else 0
        name = str(content.get("name") or ("flash" if is_flash else "ram"))
        yield ChipMemory(
            memory_name(name) + (str(number) if number else ""),
            start,
            end - start,
            "flash" if is_flash else "ram",
            sectors=split_sectors(end - start, sector),
            first=bool((content.get("access") or {}).get("boot")),
        )
