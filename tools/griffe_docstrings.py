"""For the API pages: a griffe extension that reads our docstrings, and the native stub, as they are meant.

Named in `mkdocs.yml`; nothing else uses it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:$", flags=re.MULTILINE)
_STRUCTS = {"Struct", "Message", "GroupEntry", "ShmStructure"}


class OurDocstrings(griffe.Extension):
    """Shows examples as code, and what the classes of the native module and structs are made with."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for everything that has a name: an ``Example:`` is text to griffe, ``Examples:`` is code."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub("Examples:", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called once a class is read: griffe knows ``__init__``, which native classes and structs lack."""
        if "__init__" in cls.members:
            return
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function):
            cls.set_member("__init__", griffe.Function("__init__", parameters=new.parameters, returns=None))
        elif any(str(base).rpartition(".")[2] in _STRUCTS for base in cls.bases):
            fields = [
                member
                for member in cls.members.values()
                if isinstance(member, griffe.Attribute) and "instance-attribute" in member.labels
            ]
            cls.set_member(
                "__init__", griffe.Function("__init__", parameters=_parameters(fields), returns=None)
            )
            for field in fields:
                if field.docstring is None:  # the signature says all there is
                    cls.del_member(field.name)


def _parameters(fields: list[griffe.Attribute]) -> griffe.Parameters:
    """The fields of a struct as the parameters that msgspec makes of them."""
    kind = griffe.ParameterKind.positional_or_keyword
    parameters = (
        griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
        for field in fields
    )
    return griffe.Parameters(griffe.Parameter("self", kind=kind), *parameters)
