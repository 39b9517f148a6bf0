"""The sync client has each method of the async one."""

import pytest

import hansard

TWINS = [
    (hansard.types.AsyncBoard, hansard.types.Board),
    (hansard.types.AsyncTransaction, hansard.types.Transaction),
    (hansard.types.AsyncTeam, hansard.types.Team),
    (hansard.memory.AsyncMemory, hansard.memory.Memory),
    (hansard.memory.AsyncMemorySpace, hansard.memory.MemorySpace),
    (hansard.types.AsyncCommonRecord, hansard.types.CommonRecord),
    (hansard.AsyncRecord, hansard.Record),
    (hansard.AsyncSession, hansard.Session),
    (hansard.types.AsyncResumable, hansard.types.Resumable),
    (hansard.roles.AsyncRestrictedRecord, hansard.roles.RestrictedRecord),
    (hansard.roles.AsyncRestrictedSession, hansard.roles.RestrictedSession),
]

OTHER_NAMES = {"aclose": "close", "task_group": "thread"}


@pytest.mark.parametrize(("of_async", "of_sync"), TWINS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_in_both_clients(of_async: type, of_sync: type) -> None:
    """And neither has one that the other lacks."""
    assert names(of_async) == names(of_sync)


def names(kind: type) -> set[str]:
    """Return the public names of a class, as the sync client calls them."""
    return {OTHER_NAMES.get(name, name) for name in dir(kind) if not name.startswith("_")}


def test_each_method_of_the_memory_tool_is_there_in_both_clients() -> None:
    """And neither has one that the other lacks."""
    from hansard.ext.memory import anthropic_tool  # noqa: PLC0415 -- it imports anthropic

    assert names(anthropic_tool.AsyncMemoryTool) == names(anthropic_tool.MemoryTool)
