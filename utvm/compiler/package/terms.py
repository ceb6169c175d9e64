# SPDX-License-Identifier: Apache-2.0
"""What a package says about itself that the compiler cannot know."""

import re
from dataclasses import dataclass, fields

from utvm.errors import ConfigError

# Semantic Versioning 2.0.0, section 2; pre-release and build marks as Arduino's library manager takes them.
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


@dataclass(frozen=True)
class Terms:
    """Who answers for a package, and under which terms it may be used.

    Attributes:
        version: of the package, three numbers with dots.
        author: name, possibly with an e-mail address in angle brackets.
        url: page of the model; Arduino wants one.
        code_license: SPDX expression for the generated C, and for what this project has put beside it: its own.
        weights_license: SPDX expression for the weights, which have the terms of the model they come from.
    """

    version: str = "0.1.0"
    author: str = "unknown"
    url: str = "https://example.invalid/"
    code_license: str = "Apache-2.0"
    weights_license: str = "NOASSERTION"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value.strip() or not value.isprintable():
                raise ConfigError(f"a package's {field.name} cannot be {value!r}", "give one line of text")
        if not _VERSION.fullmatch(self.version):
            raise ConfigError(f"a package's version cannot be {self.version!r}", "give three numbers: 1.0.0")
