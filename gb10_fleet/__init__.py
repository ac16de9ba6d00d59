"""The command `gb10`: runs the collection's playbooks and shows what they left."""

from importlib.metadata import version

__version__ = version("gb10-fleet")
