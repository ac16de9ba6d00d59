# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dataclasses that cost nothing to define: the part of the standard library's that the engine uses.

Those write source text for every class and compile it, each time the program starts: for the engine's 30 classes that
was a third of the CPU time of a run that finds nothing to do (30 of 97 ms), on every host. A type checker sees the real
ones.

So it is with what else is for a type checker: to import typing is a tenth of what a call imports. Every source that
travels names it under TYPE_CHECKING alone, and takes NamedTuple and Generic from here.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import Any
    from typing import Generic as Generic
    from typing import NamedTuple as NamedTuple
else:
    _MISSING = object()

    class Generic:
        """`Generic[T]` and what is derived of it: the brackets are for a type checker."""

        def __class_getitem__(cls, _parameters: Any) -> Any:
            return cls

    class _Tuples(type):
        """Makes a class of named fields a tuple. Of its own body it keeps methods and texts."""

        def __new__(cls, name: str, bases: Any, body: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = list(body.get("__annotations__", {}))
            defaults = [body.pop(field) for field in fields if field in body]
            base = namedtuple(f"_{name}", fields, defaults=defaults)
            return type(name, (base,), {**body, "__slots__": ()})

    class NamedTuple(metaclass=_Tuples):
        pass

    class _Made:
        """A default that is made anew for each object."""

        def __init__(self, factory: Any) -> None:
            self.factory = factory

    def field(*, default_factory: Any) -> Any:
        return _Made(default_factory)

    def dataclass(cls: Any = None, *, frozen: bool = False) -> Any:
        """Fields are the annotations of the class, after those of the classes above it; ClassVar is none."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen)
        fields = dict(getattr(cls, "_fields", {}))
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if not annotation.startswith("ClassVar"):
                fields[name] = vars(cls).get(name, _MISSING)
        cls._fields = fields
        cls.__init__, cls.__eq__, cls.__repr__ = _init, _eq, _repr
        cls.__hash__ = _hash if frozen else None
        if frozen:
            cls.__setattr__ = cls.__delattr__ = _refuse
        return cls

    def replace(thing: Any, **changes: Any) -> Any:
        return type(thing)(**{**vars(thing), **changes})

    def _init(self: Any, *positional: Any, **named: Any) -> None:
        fields = type(self)._fields
        values = dict(zip(fields, positional))
        if len(positional) > len(fields) or not named.keys() <= fields.keys() or not values.keys().isdisjoint(named):
            raise TypeError(f"{type(self).__name__} takes {', '.join(fields)}, each once; got {(*positional, *named)}")
        values.update(named)
        own = self.__dict__
        for name, default in fields.items():
            value = values.get(name, default)
            if value is default and type(default) is _Made:
                value = default.factory()
            if value is _MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            own[name] = value

    def _eq(self: Any, other: Any) -> Any:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def _repr(self: Any) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _hash(self: Any) -> int:
        return hash(tuple(vars(self).values()))

    def _refuse(self: Any, name: str, _value: Any = None) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot change")
