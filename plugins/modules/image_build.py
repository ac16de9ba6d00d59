#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_build
short_description: Build an image for a GB10 on one host, and prove it before it may serve
version_added: "0.1.0"
description:
  - Does what the variables of the role C(vllm_image) ask for, on the host of the task.
  - Looks into the base image first. Where nothing is to be built it says so and ends.
  - BuildKit builds in a systemd unit of its own. A lost connection or a killed controller does not end it; the next run
    goes on with it. Every ten seconds it says how far the build is.
  - The built image is judged beside its base. It gets the name that serves only if all checks hold; else its tag begins
    with C(refused-).
  - The same inputs are built once.
options:
  path:
    description: Folder of the evidence on the controller, relative to the current folder.
    type: path
    default: evidence/images
  step:
    description: Made by the action; leave it out.
    type: str
    choices: [look, read, start, examine, serve, settle]
  request:
    description: Made by the action; leave it out.
    type: dict
    default: {}
extends_documentation_fragment: gb10.fleet.steps
attributes:
  check_mode:
    description: Looks and plans, builds nothing.
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Build and prove what vllm_image_base and its siblings say
  gb10.fleet.image_build:
  register: built

- name: Say what came of it
  ansible.builtin.debug:
    msg: "{{ built.lines }}"
"""

RETURN = r"""
verdict:
  description:
    - V(nothing) where there is nothing to build, V(accepted), V(would_build) in check mode, or the first check that
      failed, V(versions), V(files), V(libraries), V(architecture), V(imports), V(operators), V(sense) or V(speed).
  returned: success
  type: str
image:
  description: Name of the image; empty where nothing was built.
  returned: success
  type: str
  sample: gb10-fleet/built:4f1c0e0b7a39
digests:
  description: Its names by digest, where Docker's store gives a built image one.
  returned: success
  type: list
  elements: str
lines:
  description: What came of it, for a person to read.
  returned: success
  type: list
  elements: str
json:
  description: Path of the evidence on the controller; empty where nothing was judged.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.images import build_steps
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, told

STEPS = ["look", "read", "start", "examine", "serve", "settle"]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "evidence/images"},
            "step": {"type": "str", "choices": STEPS},
            "request": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        result = build_steps.carry_out(module.params["step"], module.params["request"])
    except ImageError as error:
        module.fail_json(msg=str(error), verdict=error.name)
    except (FilesError, OSError) as error:
        module.fail_json(**told(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
