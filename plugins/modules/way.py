#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin way."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: way
short_description: Write down the command line with which ssh reaches a host
version_added: "0.1.0"
description:
  - C(gb10 ask) and C(gb10 logs) talk to a host themselves, over the ssh that Ansible would use. This writes its command
    line, with the key of the service, into a file that only its owner can read. It does not ask the host.
  - The file also has the command that puts a key onto the host. For a host whose password is in the inventory there is
    no command line, and the file says so.
options:
  file:
    description: The file to write. It must not be there.
    type: path
    required: true
  command:
    description: What to run on the host. Without it, O(forward) is needed.
    type: str
  forward:
    description: Address and port on the host that standard input and output of ssh lead to.
    type: str
  look:
    description:
      - With O(forward), what has to end well on the host before anything is sent. The file has its command line, too.
    type: str
  key:
    description: The key of the service.
    type: str
    default: ""
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.controller
seealso:
  - module: gb10.fleet.spark_facts
"""

EXAMPLES = r"""
- name: Write down how to reach the API of a service
  gb10.fleet.way:
    file: /run/user/1000/way.json
    forward: 127.0.0.1:8000
    look: test -e /run/gb10-vllm/serving
    key: "{{ vllm_api_key }}"
  no_log: true
"""

RETURN = r"""#"""
