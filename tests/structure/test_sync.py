"""The sync client has each method of the async one."""

import pytest

import hansard
from hansard.ext.memory import anthropic_tool

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
    (anthropic_tool.AsyncMemoryTool, anthropic_tool.MemoryTool),
]

OTHER_NAMES = {"aclose": "close", "task_group": "thread"}


@pytest.mark.parametrize(("of_async", "of_sync"), TWINS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_in_both_clients(of_async: type, of_sync: type) -> None:
    """And neither has one that the other lacks."""

    def names(kind: type) -> set[str]:
        return {OTHER_NAMES.get(name, name) for name in dir(kind) if not name.startswith("_")}

    assert names(of_async) == names(of_sync)
