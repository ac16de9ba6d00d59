"""What is done once, before Ansible forks a worker for each host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import run

COLLECTIONS = Path(run.__file__).parents[6]  # of the checkout, or where it is installed
CODE = f"""
import gc, sys
from ansible.plugins.loader import init_plugin_loader
sys.path.insert(0, {str(COLLECTIONS)!r})
init_plugin_loader([{str(COLLECTIONS)!r}])
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import run
for _ in range(2):
    print(any(name.startswith("ansible.plugins.filter.core") for name in sys.modules), gc.get_freeze_count() > 0)
    run.before_forks()
"""


def test_workers_find_filters_and_memory_as_they_are() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True"]
