# SPDX-License-Identifier: Apache-2.0
"""Templates: every package that writes text from them keeps them in its folder ``templates``."""

import jinja2


def templates_of(package: str, *, html: bool = False) -> jinja2.Environment:
    """A package's templates; a name that is not given to one is an error.

    Args:
        html: whether what is filled in is escaped for HTML.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,
    )
