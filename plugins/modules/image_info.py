#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Say what is in a container image, and which GPUs it has kernels for
version_added: "0.1.0"
description:
  - Reads an image in the Docker of the host. No container is made, nothing of the image runs, and no CUDA toolkit is
    needed.
  - In Docker's classic store (overlay2) it reads the few files that matter, in the folders of the layers. In
    containerd's store it reads what C(docker save) gives out, once and as a stream; one shared object at a time lies
    in C(/var/tmp) meanwhile.
  - Files of upper layers hide those of lower ones, as in a container.
  - Absent values are null, never a guess. Values of environment variables whose names say that they are secret are
    hidden.
options:
  image:
    description: Name, digest or ID of an image that this Docker has.
    type: str
    required: true
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Look into an image
  gb10.fleet.image_info:
    image: nvcr.io/nvidia/vllm:26.10-py3
  register: image

- name: Require kernels of SM12x in all of vLLM's extensions
  ansible.builtin.assert:
    that: image.extensions | selectattr('owner', 'eq', 'vllm') | map(attribute='cubins') | select('search', 'sm_12')
"""

RETURN = r"""
reference:
  description: The image as it was asked for.
  returned: success
  type: str
  sample: nvcr.io/nvidia/vllm:26.10-py3
id:
  description: The image's ID in this Docker.
  returned: success
  type: str
names:
  description: Names and tags that it has there.
  returned: success
  type: list
  elements: str
digests:
  description: Names with the digest of the registry; empty for an image that was built or loaded here.
  returned: success
  type: list
  elements: str
source:
  description: How it was read, V(overlay2) or V(docker save).
  returned: success
  type: str
layers:
  description: Number of layers.
  returned: success
  type: int
bytes:
  description: Size of all files of all layers, those that are hidden included.
  returned: success
  type: int
architecture:
  description: Of the processor, as the image says.
  returned: success
  type: str
  sample: arm64
os:
  description: Operating system, as the image says.
  returned: success
  type: str
  sample: linux
created:
  description: When it was built, as the image says.
  returned: success
  type: str
entrypoint:
  description: Words of the entrypoint.
  returned: success
  type: list
  elements: str
command:
  description: Words of the command that follows it, if nothing else is asked for.
  returned: success
  type: list
  elements: str
environment:
  description: Environment variables; V((hidden)) in place of secrets.
  returned: success
  type: dict
user:
  description: User of its processes; empty is root.
  returned: success
  type: str
working_directory:
  description: Folder that they start in.
  returned: success
  type: str
on_build:
  description: Steps that the image has for every build on it (C(ONBUILD)).
  returned: success
  type: list
  elements: str
versions:
  description:
    - C(vllm), C(torch), C(transformers), C(ray), C(flashinfer), C(triton) and C(nccl) of Python's packages, C(cuda) of
      the toolkit, C(torch_cuda) that torch was built with, and C(python). Null where it is not in the image.
  returned: success
  type: dict
  sample:
    {vllm: 0.33.0, torch: 2.11.0, transformers: 5.2.0, ray: null, flashinfer: 0.7.1, triton: 3.6.0, nccl: 2.28.9,
     cuda: 13.0.2, torch_cuda: "13.0", python: "3.12"}
packages:
  description: Version of each Python package. Where several folders have one, that of the folder that has vLLM.
  returned: success
  type: dict
vllm_folders:
  description: Folders of vLLM; more than one in an image with several Python environments.
  returned: success
  type: list
  elements: str
vllm_requires:
  description: What vLLM's package says it needs, in the words of the package.
  returned: success
  type: list
  elements: str
nccl:
  description: C(libraries) of NCCL whose names have a version, with path, and the lines of each C(conf) file.
  returned: success
  type: dict
  sample:
    libraries: [{path: /usr/lib/aarch64-linux-gnu/libnccl.so.2.28.9, version: 2.28.9}]
    conf: {/etc/nccl.conf: [NCCL_IB_TC=106]}
extensions:
  description:
    - Each shared object or cubin with code for GPUs. C(cubins) are compiled for these architectures. C(ptx) is compiled
      for the host's GPU when it is first used. C(compressed) counts what is compressed of both.
    - C(owner) is the Python package, a cache, V(CUDA toolkit) or V(system). C(error) says why a file could not be read.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /usr/local/lib/python3.12/dist-packages/vllm/_C_stable_libtorch.abi3.so
      name: _C_stable_libtorch
      owner: vllm
      bytes: 89390368
      cubins: {sm_120: 50, sm_120f: 35, sm_90: 58}
      ptx: {compute_80: 19}
      compressed: 521
      error: null
caches:
  description: Kernels, graphs and tunings that were made beforehand, by C(name) and C(folder).
  returned: success
  type: list
  elements: dict
  sample:
    - {name: FlashInfer JIT, folder: /root/.cache/flashinfer, files: 12, bytes: 9300000, cubins: {sm_121a: 6}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.images import docker
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError


def main() -> None:
    module = AnsibleModule(argument_spec={"image": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        facts = docker.read(module.params["image"])
    except ImageError as error:
        module.fail_json(msg=str(error), verdict=error.name)
    except OSError as error:
        where = error.filename or "/var/tmp"  # noqa: S108 - a place that is named, not used
        module.fail_json(msg=f"failed: {where}: {error.strerror}; mend what it says, then run again", verdict="failed")
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
