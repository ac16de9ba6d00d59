# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an image cannot be read: a name, what was seen, and the way out."""

from __future__ import annotations


class ImageError(Exception):
    """`name`: no_docker | no_such_image | no_image | bad_image | bad_layer | no_tool | too_much | failed."""

    def __init__(self, name: str, text: str, way_out: str = "pull or save the image again") -> None:
        super().__init__(f"{name}: {text}; {way_out}")
        self.name = name
        self.said = f"{text}; {way_out}"
