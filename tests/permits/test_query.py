"""SQL under a role needs that the role may query: else it is refused, and that is on record."""

import msgspec

from hansard.domain import access
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles import check as role_file

RULES = """
[roles.clerk]
sees = [{ name = "all", kinds = ["**"] }]
"""


def test_a_role_that_may_not_query_is_refused_on_record(call, record):
    """The error names the missing permission; the refused access is recorded with caller and
    role.
    """
    record.roles.apply("clerk", role_file.parse(RULES)["clerk"])
    with record.run("w", run="r"):
        pass
    refused = call("sql", "--role", "clerk", "SELECT 1")
    assert refused.code == 2
    assert "query = true" in refused.err
    stream = WorkspaceStream(access.KIND, access.STRANGER)
    stored = record._portal.run(record.workspace.log.read(stream))
    [refusal] = [msgspec.json.decode(each.data) for item in stored for each in item.commit.events]
    assert (refusal["role"], refusal["operation"]) == ("clerk", "query")
    assert "query = true in [roles.clerk.may]" in refusal["because"]
