"""Operations of a record for restricted roles; test_record_parity has those with all rights."""

from collections.abc import Callable

import pytest

import hansard
from tests.actions.test_cache import cache, entry
from tests.compare.test_in_python import PLAN
from tests.service.support import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]

ROLES = """
[[roles.writer.sees]]
name = "caches"
kinds = ["actions.*"]
[roles.few]
sees = [{ name = "one kind", kinds = ["prompt.version_added", "actions.saved", "run.*"] }]
may = { tools = ["**"], query = true }
[roles.clerk]
sees = [{ name = "caches", kinds = ["actions.*"] }]
may = { tools = ["**"], kinds = ["actions.*"] }
[roles.reader]
sees = [{ name = "prompts and caches", kinds = ["prompt.*", "actions.*"] }]
may = { tools = ["**"] }
"""


def test_prompts_are_read_whole_and_changed_by_kind(served: Serve) -> None:
    """Reading needs sight of all prompts, a change its kind, a report the right to query."""
    house = served("prompts", ROLES)
    with house.connect("ada", "writer") as record:
        record.prompts.add("rag", "Answer {query}.")
        record.prompts.add("rag", "Answer {query} now.")
        record.prompts.alias("rag@1", "production", expected=None)
        ask = hansard.tool(effects="pure", kind="model", name="ask")(lambda text: text)
        with record.run("w", run="r"):
            ask(record.prompts.get("rag@production").format(query="q"))
        assert {(row.version, row.runs) for row in record.prompts.report("rag").rows} >= {(1, 1)}
        record.prompts.alias("rag", "production", take_away=True)
        record.prompts.retire("rag@1", reason="old")
    with house.connect("bob", "reader") as record:
        assert record.prompts.get("rag@2").text == "Answer {query} now."
        assert [each.reference for each in record.prompts.list()] == ["rag@2"]
        with pytest.raises(hansard.errors.RoleRefused, match=r"prompt\.version_added"):
            record.prompts.add("rag", "mine")
        with pytest.raises(hansard.errors.RoleRefused, match="query"):
            record.prompts.report("rag")
        with pytest.raises(hansard.NotFound):
            record.prompts.get("none")
    needs = r"does not see all of prompt\.aliased"
    with house.connect("eve", "few") as record:
        for reference in ("rag", "none"):
            with pytest.raises(hansard.errors.RoleRefused, match=needs):
                record.prompts.get(reference)
    with house.trusted() as record:
        used = record.sql("SELECT run, prompt, version, alias FROM prompt_uses").rows
        assert used == [("r", "rag", 1, "production")]
        first, *_ = record.prompts.log("rag").versions
        assert (first.by, first.retired) == ("ada", "old")


def test_action_caches_are_read_whole_and_changed_by_kind(served: Serve) -> None:
    """Reading needs sight of all caches, a change its kind; naming a run reveals nothing."""
    house = served("caches", ROLES)
    with house.trusted() as trusted, trusted.run("w", run="told", agent="boss") as session:
        session.message("user", "fill in", label="secret")
    steps = cache(entry(0), entry(1, arguments=[{"$secret": "pw"}]))
    with house.connect("ada", "writer") as record:
        record.actions.keep("form", steps)
        record.actions.keep("form", cache(entry(0)))
        assert {each.author for each in record.actions.log("form").versions} == {"ada"}
    with house.connect("ida", "clerk") as record:
        for run in ("told", "no run"):
            assert record.actions.keep(run, cache(entry(0), run=run)) == 1
            assert record.actions.get(run).run == run
    with house.connect("bob", "reader") as record:
        assert record.actions.get("form", 1).actions == steps.actions
        for refused, needs in (
            (lambda: record.actions.keep("form", steps), r"actions\.saved"),
            (lambda: record.actions.revert("form", 2), r"actions\.reverted"),
            (lambda: record.actions.review("form"), r"actions\.looked_at"),
            (record.actions.list, "query"),
        ):
            with pytest.raises(hansard.errors.RoleRefused, match=needs):
                refused()
    needs = r"does not see all of actions\.healed"
    with house.connect("eve", "few") as record:
        for name in ("form", "none"):
            with pytest.raises(hansard.errors.RoleRefused, match=needs):
                record.actions.get(name)
    with house.trusted() as record:
        assert [each.version for each in record.actions.log("form").versions] == [1, 2]


def test_reports_are_made_of_the_role_s_own_tables(served: Serve) -> None:
    """Unseen decisions are in no report; a role that may not query gets none; each is on record."""
    few = '[roles.few]\nsees = [{ name = "runs", kinds = ["run.*", "experiment.*"] }]\n'
    idle = '[roles.idle]\nmay = { tools = ["**"] }\n'
    house = served("reports", few + "may = { query = true }\n" + idle)
    with house.trusted() as record:
        record.experiments.register("e", PLAN)
        for arm in ("plain", "bold"):
            with record.run("w", run=arm, experiment="e", arm=arm, task="t") as session:
                session.decide("?", selected="this", alternatives=["that"])
            record.experiments.score(arm, {"solved": int(arm == "bold")}, by="judge")
        judged = record.experiments.compare("e").report.judged
    with house.connect("ada", "writer") as record:
        [decision] = record.why("bold").rows
        assert record.savings("bold").position == record.sql("SELECT 1").position > 0
        with pytest.raises(hansard.HansardError, match="read"):
            record.sql("COPY (SELECT 1) TO '/tmp/planted'")
        with pytest.raises(hansard.BadValue, match="LIMIT"):
            record.sql("SELECT repeat('x', 10000000)")
    with house.connect("bob", "few") as record:
        assert record.experiments.compare("e").report.judged == judged
        assert record.why("bold").rows == []
        with pytest.raises(hansard.NotFound):
            record.why(decision["decision"])
    with house.connect("eve", "idle") as record:
        for ask in (record.savings, record.experiments.compare, record.why, record.audit):
            with pytest.raises(hansard.errors.RoleRefused):
                ask("e")
    with house.trusted() as record:
        count = record.sql("SELECT count(*) FROM events WHERE type = 'query.answered.v1'").rows
        assert count == [(6,)]  # one of them was too large to give


FEW = """
[roles.few]
sees = [{ name = "own", kinds = ["**"], roles = ["few"] }]
may = { tools = ["**"] }
"""


def test_a_role_reuses_the_answers_that_it_sees(served: Serve) -> None:
    """A role that sees an answer reuses it; offering and invalidating need a rule."""
    house = served("reusing", FEW)
    ran: list[str] = []

    def ask(record, run: str) -> None:
        with record.run("flow", run=run) as session:

            @session.tool(effects="pure", reuse=hansard.reuse(ttl_s=3_600))
            def search(text: str) -> tuple[str, int]:
                ran.append(run)
                return text, 1

            assert search("x") == ("x", 1)

    with house.connect("eve", "few") as record:
        ask(record, "few-1")
        ask(record, "few-2")  # it may not offer
        with pytest.raises(hansard.errors.RoleRefused, match=r"reuse\.invalidated"):
            record.invalidate(tool="search")
    with house.connect("ada", "writer") as record:
        ask(record, "ada-1")
        ask(record, "ada-2")
    with house.connect("eve", "few") as record:
        ask(record, "few-3")  # it does not see the writer's
    assert ran == ["few-1", "few-2", "ada-1", "few-3"]
    with house.connect("ada", "writer") as record:
        record.invalidate(tool="search", reason="rebuilt")
        with pytest.raises(hansard.BadValue, match="name one"):
            record.invalidate()
        ask(record, "ada-3")
    assert ran[4:] == ["ada-3"]
    with house.trusted() as record:
        source = record.state("ada-2").agent("ada").steps[1].reused_from
        assert source is not None
        assert source.run == "ada-1"
        rows = record.sql("SELECT author, tool, because FROM invalidated_answers").rows
        assert rows == [("ada", "search", "rebuilt")]
