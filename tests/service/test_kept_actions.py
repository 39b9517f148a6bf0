"""Action caches through the service: by the role's rules, as a trusted program has them."""

from pathlib import Path

import pytest

import hansard
from hansard.domain.errors import BadValue
from tests.actions.test_cache import cache, entry
from tests.service.support import ALL, Served

pytestmark = pytest.mark.slow

ROLES = """
[[roles.writer.sees]]
name = "caches"
kinds = ["actions.*"]
[roles.few]
[[roles.few.sees]]
name = "what was saved alone"
kinds = ["actions.saved"]
[roles.few.may]
tools = ["**"]
[roles.clerk]
[[roles.clerk.sees]]
name = "caches"
kinds = ["actions.*"]
[roles.clerk.may]
tools = ["**"]
kinds = ["actions.*"]
[roles.reader]
[[roles.reader.sees]]
name = "caches"
kinds = ["actions.*"]
[roles.reader.may]
tools = ["**"]
"""


def test_a_role_keeps_and_reads_caches_that_it_sees_whole(data_dir: Path, tmp_path: Path) -> None:
    """Keeping and reading caches follow the role's kinds and sight; secrets stay named."""
    house = Served(data_dir, "caches", tmp_path)
    house.apply(ALL + ROLES)
    house.begin()
    with house.trusted() as trusted, trusted.run("w", run="told", agent="boss") as session:
        session.message("user", "fill in", label="secret")
    said = cache(entry(0), entry(1, arguments=[{"$secret": "pw"}]))
    try:
        with house.connect("ada", "writer") as record:
            assert record.keep_actions("form", said, because="as on Monday") == 1
            assert record.keep_actions("form", said) == 1
            assert record.keep_actions("form", cache(entry(0))) == 2
            assert record.kept_actions("form", 1).actions == said.actions
            assert record.revert_actions("form", 1, because="the other is wrong") == 3
            assert record.look_at_actions("form") == 3
            [listed] = record.action_caches().caches
            assert (listed.cache, listed.versions, listed.looked_at) == ("form", 3, 3)
            found = record.actions_log("form").versions
            assert [each.change for each in found] == ["saved", "saved", "reverted"]
            assert {each.author for each in found} == {"ada"}
            with pytest.raises(hansard.errors.Refused, match="no version 9"):
                record.kept_actions("form", 9)
            with pytest.raises(BadValue, match="one stepIndex"):
                record.keep_actions("form", cache(entry(0), entry(0)))
            with pytest.raises(hansard.NotFound, match="none"):
                record.look_at_actions("none")
        with house.connect("ida", "clerk") as record:
            for run in ("told", "no run"):  # it learns nothing of a run by naming it
                assert record.keep_actions(run, cache(entry(0), run=run)) == 1
                assert record.kept_actions(run).run == run
        with house.connect("bob", "reader") as record:
            assert record.kept_actions("form").actions == said.actions
            for refused, needs in (
                (lambda: record.keep_actions("form", said), r"actions\.saved"),
                (lambda: record.revert_actions("form", 2), r"actions\.reverted"),
                (lambda: record.look_at_actions("form"), r"actions\.looked_at"),
                (record.action_caches, "query"),
            ):
                with pytest.raises(hansard.errors.RoleRefused, match=needs):
                    refused()
        with house.connect("eve", "few") as record:
            for name in ("form", "none"):
                with pytest.raises(
                    hansard.errors.RoleRefused, match=r"does not see all of actions\.healed"
                ):
                    record.kept_actions(name)
        with house.trusted() as record:
            assert [each.version for each in record.actions_log("form").versions] == [1, 2, 3]
    finally:
        house.end()
