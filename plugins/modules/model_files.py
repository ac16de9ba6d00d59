#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: model_files
short_description: Bring image and model files to a cluster once, then from host to host
version_added: "0.1.0"
description:
  - One step on the way of the image and the files of a model, as the variables of the role C(vllm) name them. The first
    host of a cluster with a fabric gets them from outside; the others get them from it, over the fabric, by rsync.
  - A host without a fabric, or where C(vllm_fetch) is false, is its own source.
  - A draft model (C(vllm_speculative)) goes the same way, with a commit of its own.
  - Every file of the model is compared with its checksum. A transfer that broke off goes on where it stopped.
  - Every ten seconds it says how far it is.
options:
  step:
    description:
      - V(read) says what the host has, and changes nothing.
      - V(download) names the image, and gets the model from the hub, on a host that is its own source; others read.
      - V(offer) lets the hosts that lack something read it, on the source.
      - V(take) gets it from there, on the others.
      - V(withdraw) ends the offer.
    type: str
    choices: [read, download, offer, take, withdraw]
    required: true
  service:
    description: Name of the service whose files they are. V(vllm) is the one of C(vllm_model).
    type: str
    default: vllm
  given:
    description:
      - What O(step=download) returned, for each host of the cluster; for the steps after it. For O(step=download)
        itself what O(step=read) returned.
    type: dict
    default: {}
  offered:
    description: What O(step=offer) returned on the source, for O(step=take).
    type: dict
    default: {}
  request:
    description: Made by the action; leave it out.
    type: dict
    default: {}
  secret:
    description: Made by the action; leave it out.
    type: str
extends_documentation_fragment: gb10.fleet.steps
attributes:
  check_mode:
    description: Says what would come, and from where; nothing is transferred.
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Look what is there
  gb10.fleet.model_files:
    step: read
  register: there
"""

RETURN = r"""
name:
  description: The name that every host gives the image.
  returned: always
  type: str
  sample: gb10-fleet/vllm:4f1c0e0b7a39
source:
  description: The host that this one gets its files from; itself where it gets them from registry and hub.
  returned: always
  type: str
  sample: spark-a
pull:
  description: Whether this host must pull the image from the registry.
  returned: with O(step=read) and O(step=download)
  type: bool
image:
  description:
    - What the image is, whatever Docker's store calls it, and its size; null where it is not there.
    - C(pinned) is whether its id is the pinned digest (containerd's store). C(configuration) is its id in Docker's
      classic store, the digest of the whole configuration.
  returned: with O(step=read) and O(step=download)
  type: dict
  sample:
    fingerprint: 9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab
    bytes: 21474836480
    pinned: false
    configuration: sha256:5e981582c25298a01492a4af9f5e9548e4855248106aecec35515f7a726dc396
model:
  description: Commit, size and files of the model, if it is whole; else null.
  returned: with O(step=read) and O(step=download)
  type: dict
draft:
  description: The same of the draft model.
  returned: with O(step=read) and O(step=download), where C(vllm_speculative) names a draft model
  type: dict
draft_pin:
  description: The commit of the draft model, as RV(pin).
  returned: with O(step=read) and O(step=download), where C(vllm_speculative) names a draft model
  type: str
loras:
  description: The same of each adapter of C(vllm_lora), as RV(model) and RV(pin).
  returned: with O(step=read) and O(step=download), where C(vllm_lora) names some
  type: list
  elements: dict
pin:
  description: The commit that the revision was when the model was fetched first; it stays until it is moved.
  returned: with O(step=read) and O(step=download)
  type: str
archive:
  description: Size and SHA-256 of the image's archive, which reach the other hosts through the controller alone.
  returned: with O(step=offer), where a host lacks the image
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.images import one_image
from ansible_collections.gb10.fleet.plugins.module_utils.serving import file_steps, host_files, host_tools
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, told


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "required": True, "choices": ["read", "download", "offer", "take", "withdraw"]},
            "service": {"type": "str", "default": "vllm"},
            "given": {"type": "dict", "default": {}},
            "offered": {"type": "dict", "default": {}},
            "request": {"type": "dict", "default": {}},
            "secret": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    request, step = module.params["request"], module.params["step"]
    try:
        if module.check_mode or step == "read":
            module.exit_json(changed=False, **host_files.Files(request["files"], lambda *__: None).read())
        with file_steps.alone() as progress:
            teller, secret = host_tools.Teller(progress), module.params["secret"] or ""
            result = file_steps.carry_out(step, request, secret, teller, one_image.load)
    except (FilesError, ValueError, OSError) as error:
        module.fail_json(**told(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
