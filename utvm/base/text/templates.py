# SPDX-License-Identifier: Apache-2.0
"""Templates: each package stores them in its folder ``templates``."""

import jinja2


def templates_of(package: str | jinja2.BaseLoader, *, html: bool = False) -> jinja2.Environment:
    """Return the templates of a package or of a loader; undefined names are errors.

    Args:
        html: escape values for HTML.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package) if isinstance(package, str) else package,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,
    )
