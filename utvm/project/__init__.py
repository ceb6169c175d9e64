# SPDX-License-Identifier: Apache-2.0
"""Projects for other build systems: an application around a packaged library, which builds and runs there.

:func:`create` writes one for a platform. A platform is a folder: of ``utvm/project/platforms``, or anybody's own.
:class:`Project` builds it, puts it on a board and listens to it. These four are what microTVM's Project API had.
"""

from utvm.project.create import Platform, create, load_platform, platforms
from utvm.project.project import Project, open_transport, run_on_host

__all__ = ["Platform", "Project", "create", "load_platform", "open_transport", "platforms", "run_on_host"]
