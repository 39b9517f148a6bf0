"""Names that a public module exports."""

from types import ModuleType


def exported(module: ModuleType) -> list[str]:
    """Return the names that a public module imports for its users, sorted."""
    return sorted(name for name in dir(module) if name.isidentifier() and name[0] != "_")
