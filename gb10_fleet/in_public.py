"""ansible-playbook in a folder that any login may write to.

Ansible runs what it finds in `shell_plugins` of the current folder: the path in its loader is that name. It reads no
ansible.cfg there, and so this is not taken either.
"""

from __future__ import annotations

import sys

from ansible.cli.playbook import main
from ansible.plugins.loader import shell_loader

if __name__ == "__main__":
    shell_loader.config = []
    main(["ansible-playbook", *sys.argv[1:]])
