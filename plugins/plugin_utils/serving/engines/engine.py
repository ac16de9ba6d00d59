# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine is: command line, image, readiness, names of metrics, share of memory. All else does not know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

AUTO = -1  # of a context: as long as fits


@dataclass(frozen=True, kw_only=True)
class Start:
    """What one rank of a service is started with, in the words of no engine."""

    model: str
    revision: str
    served_name: str
    share: float  # of the host's memory
    context: int  # tokens of a request; 0 is the model's own
    address: str  # of the API
    port: int
    further: Sequence[str]  # flags of the inventory
    hosts: int  # of the cluster
    rank: int
    tensor: int  # on how many hosts each layer lies
    pipeline: int  # how many stages of such hosts there are
    executor: str
    head: str  # the address of the cluster's first host
    meeting_port: int  # where the ranks find each other
    draft: str = ""  # speculative decoding, as vLLM is told


Words = Callable[[Start], Sequence[object]]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One of the engines; docs/architecture/serving.md has the recipe for another."""

    title: str  # as people write it
    # The command line: what follows the program, and the flags in it that the role sets itself.
    words: Words
    own_flags: frozenset[str]
    environment: Callable[[int], Mapping[str, Any]]  # of the seconds that a start may take
    address_variable: str  # of the environment: where the other ranks find this one
    # The image: the program that it must have.
    program: str
    # Readiness: the table of catalog/units.yml with the lines of its log.
    log: str
    # The names of its metrics, before the colon.
    metrics: str
    key_variable: str = (
        ""  # of the environment: the key that clients send; empty: it takes one on its command line alone
    )
    unsupported: Mapping[str, str] = field(default_factory=dict)  # keys of an entry, each with the reason
