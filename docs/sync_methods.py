# ruff: noqa: INP001 -- the site loads it as a file
"""For the reference of the Python API: show a method of the sync client as its async twin."""

from __future__ import annotations

import copy
from typing import Any

import griffe

SYNC = ("sync", "on_portal", "sync_block", "portal_block", "waits")


class SyncMethods(griffe.Extension):
    """Shows `get = sync(AsyncBoard.get)` as the function that it stands for."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace such attributes once the package is read."""
        for attribute in list(_attributes(pkg)):
            parent: Any = attribute.parent
            module, call = parent.parent, attribute.value
            held = module.members.get(call.name) if isinstance(call, griffe.ExprName) else None
            call = held.value if isinstance(held, griffe.Attribute) else call
            if isinstance(call, griffe.ExprCall) and str(call.function) in SYNC:
                owner, _, name = str(call.arguments[0]).partition(".")
                found = module[owner].all_members[name]
                method = copy.copy(found.final_target if found.is_alias else found)
                method.labels = method.labels - {"async"}
                method.parent = parent
                parent.members[attribute.name] = method


def _attributes(of: griffe.Object | griffe.Alias) -> Any:
    for member in of.members.values():
        if isinstance(member, griffe.Attribute) and isinstance(of, griffe.Class):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from _attributes(member)
