"""Python of a host that a test plays takes Ansible from this machine's environment, which has it compiled.

A module brings Ansible's files in an archive, and Python compiles them anew in each process: half of its CPU seconds.
They are the same files. Each Python reads this file by its name, if the folder is in its PYTHONPATH.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):  # a Python without Ansible runs what it is given
    import ansible  # noqa: F401
