# SPDX-License-Identifier: Apache-2.0
"""Projects for other build systems: an application around a packaged library.

:func:`create` writes one for a platform, a folder in ``utvm/project/platforms`` or one of your own.
:class:`Project` builds it, flashes a board with it and reads its output, as microTVM's Project API did.
"""

from utvm.project.project import Platform, Project, create, load_platform, open_transport, platforms, run_on_host

__all__ = ["Platform", "Project", "create", "load_platform", "open_transport", "platforms", "run_on_host"]
