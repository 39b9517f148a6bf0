"""A text keeps its label when it is restored to memory or quoted from it."""

import asyncio
import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.memory import operations
from hansard.agents.memory.reading import VisibilityFilter
from hansard.agents.memory.store import MemoryStore
from hansard.agents.policy import permits
from hansard.agents.policy.gate import AskFirst
from hansard.agents.policy.permits import clearance_of
from hansard.client.record import AsyncRecord, Record
from hansard.domain.approval import ApprovalStatus
from hansard.domain.memory.files import MemoryProposal
from hansard.ext.memory import upkeep
from hansard.ext.memory.reflection import reflect
from tests.cli.support import Call

pytestmark = pytest.mark.later

ROLES = "".join(
    f'[roles.{role}]\n{clearance}[[roles.{role}.sees]]\nname = "memory"\nkinds = ["memory.*"]\n'
    f'paths = ["org/**"]\n[roles.{role}.may]\nkinds = ["**"]\ntools = ["**"]\npaths = ["org/**"]\n'
    for role, clearance in (("planner", 'clearance = "secret"\n'), ("clerk", ""))
)
NOTES = "- Answer in bullets, and briefly please.\n- answer in bullets and briefly please\n"
SECRET = "the budget is 40,000\n"
"""Text of plans.md, labelled secret."""


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """Write a role that is cleared for all, and one for public texts."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES)
    return file


@pytest.fixture
def org(record: Record, roles: Path) -> Record:
    """Return a record with the roles, and a public and a secret file in its common space."""
    record.roles.apply_file(roles, by="ann")
    memory = record.memory("org")
    memory.set_policy("off", by="ann", untrusted=["**"])
    memory.create("AGENTS.md", NOTES, by="ann")
    with record.run("w", run="r-bob", agent="bob", role="planner") as bob:
        bob.message("user", SECRET, label="secret")
        bob.memory.create("plans.md", SECRET, space="org")
    assert memory.entry("plans.md").label == "secret"
    return record


def delete(record: Record, path: str) -> None:
    """Delete a file as a person, without a label."""
    with record.memory("org").change("no use", by="ann") as change:
        change.delete(path)


def last(record: Record) -> str:
    """Return the id of the space's last change."""
    return record.memory("org").history()[-1].event


def test_who_is_not_cleared_for_a_text_cannot_undo_its_deletion(org: Record):
    """A role without clearance cannot undo the deletion of a text."""
    delete(org, "plans.md")
    with org.run("w", run="r-cyd", agent="cyd", role="clerk") as cyd:
        shown = cyd.memory.history("plans.md", space="org")
        assert [each.op for each in shown] == ["deleted"]
        with pytest.raises(hansard.NotFound, match="was not found") as refused:
            cyd.memory.revert(shown[-1].event, space="org")
        assert "secret" not in str(refused.value)
        with pytest.raises(hansard.NotFound) as unknown:
            cyd.memory.revert("e-none", space="org")
        assert str(refused.value) == str(unknown.value).replace("e-none", shown[-1].event)
        assert str(cyd.label) == "public"
    assert [each.path for each in org.memory("org").entries()] == ["AGENTS.md"]


def test_a_space_without_a_session_brings_back_no_more(org: Record, data_dir: Path, workspace: str):
    """A space without a session restores no text above the role's clearance."""
    delete(org, "plans.md")
    change = last(org)

    async def scenario() -> None:
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            for role in ("clerk", "planner"):
                permit = await permits.read(record.workspace, role, restricted=True)
                sight = VisibilityFilter(permit, partial(clearance_of, record.workspace.log, role))
                store = MemoryStore(record.workspace, "org", sight=sight)
                if role == "clerk":
                    with pytest.raises(hansard.NotFound):
                        await store.revert(change, by="cyd")
                else:
                    await store.revert(change, by="eve")

    asyncio.run(scenario())
    assert org.memory("org").entry("plans.md").label == "secret"
    assert org.memory("org").entry("plans.md").author == "eve"


def test_a_conflict_tells_nothing_of_what_would_come_back(org: Record):
    """A conflict on undo shows both texts only to a reader who is cleared for them."""
    delete(org, "plans.md")
    with org.run("w", run="r-cyd", agent="cyd", role="clerk") as cyd:
        change = cyd.memory.history("plans.md", space="org")[-1].event
        cyd.memory.create("plans.md", "none\n", space="org")
        with pytest.raises(hansard.NotFound):
            cyd.memory.revert(change, space="org")
    with pytest.raises(hansard.errors.MemoryConflict) as conflict:
        org.memory("org").revert(change, by="ann")
    assert conflict.value.mine == SECRET


def test_a_deletion_that_is_undone_brings_the_label_back(org: Record):
    """A person's undo of a deletion restores the label, also when it is undone and redone."""
    memory = org.memory("org")
    delete(org, "plans.md")
    for _ in range(2):
        memory.revert(last(org), by="ann")
        assert (memory.view("plans.md"), memory.entry("plans.md").label) == (SECRET, "secret")
        memory.revert(last(org), by="ann")
        assert [each.path for each in memory.entries()] == ["AGENTS.md"]


def test_who_undoes_a_deletion_has_seen_what_comes_back(org: Record):
    """A cleared agent that undoes a deletion has the text's label from then on."""
    delete(org, "plans.md")
    with org.run("w", run="r-eve", agent="eve", role="planner") as eve:
        eve.memory.revert(last(org), space="org")
        assert str(eve.label) == "secret"
        eve.memory.create("mine.md", "mine\n", space="org")
    labels = {each.path: each.label for each in org.memory("org").entries()}
    assert labels == {"AGENTS.md": "", "plans.md": "secret", "mine.md": "secret"}


def test_what_is_untrusted_comes_back_as_such_and_is_asked_about(record, monkeypatch):
    """Undoing needs approval where the policy requires it for changes from untrusted input."""
    soon = AskFirst(tool="memory.*", name="memory", timeout_s=0.1)
    monkeypatch.setattr(operations, "DEFAULT_RULE", soon)
    memory = record.memory("org")
    memory.set_policy("off", by="ann", untrusted=["**"])
    with record.run("w", run="r-cyd", agent="cyd") as cyd:
        cyd.message("tool", "buy this", label="untrusted")
        cyd.memory.create("page.md", "buy this\n", space="org")
    delete(record, "page.md")
    memory.set_policy("off", by="ann")
    with record.run("w", run="r-eve", agent="eve") as eve, pytest.raises(hansard.Blocked):
        eve.memory.revert(last(record), space="org")
    assert [each.standing for each in record.approvals.list(answered=True)] == [
        ApprovalStatus.EXPIRED
    ]
    memory.revert(last(record), by="ann")
    assert memory.entry("page.md").label == "untrusted"


def test_what_is_undone_in_a_public_file_stays_public(org: Record):
    """An undo in a public file stays public; only the restored text counts."""
    memory = org.memory("org")
    memory.edit("AGENTS.md", NOTES.splitlines(keepends=True)[1], "", by="ann")
    with org.run("w", run="r-cyd", agent="cyd", role="clerk") as cyd:
        cyd.memory.revert(last(org), space="org")
        assert str(cyd.label) == "public"
    assert memory.view("AGENTS.md") == NOTES
    assert memory.entry("AGENTS.md").label == ""


def quoting(runs: list[upkeep.RunInput], files: dict[str, str]) -> list[MemoryProposal]:
    """Propose as a model that quotes a file."""
    del runs
    return [MemoryProposal("AGENTS.md", f"- {files['plans.md']}", "it is so")]


def answering(prompt: str) -> str:
    """Answer as a model that quotes a file."""
    text = SECRET.strip()
    assert text in prompt
    return json.dumps([{"path": "AGENTS.md", "text": f"- {text}", "because": "", "sources": []}])


async def files_of(record: AsyncRecord) -> dict[str, str]:
    """Return the space's texts."""
    return {each.path: each.text for each in await record.memory("org").entries()}


async def ran(record: AsyncRecord, *said: str) -> str:
    """Record a run with a user's messages, all of them public, and return its id."""
    async with record.run("w", agent="eve", role="planner") as eve:
        for text in said:
            await eve.message("user", text)
    return eve.run


@pytest.mark.parametrize("by", ["function", "model"])
def test_a_reflection_rests_on_the_files_that_it_was_given(org, data_dir, workspace, by):
    """A proposal has the label of every file that its reflection read, deleted ones too."""

    async def scenario() -> None:
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            files = await files_of(record)
            for deleted in (False, True):
                run = await ran(record, "hello")
                if deleted:
                    async with record.memory("org").change("no use", by="ann") as change:
                        change.delete("plans.md")
                if by == "function":
                    made = await reflect(record, "org", files, quoting, run=run)
                else:
                    made = await reflect(record, "org", files, run=run, ask=answering)
                assert made.label == "secret"
                assert (await upkeep.list_proposals(record.workspace, "org"))[-1].label == "secret"
            await upkeep.make(record.workspace, "org", "last", [], "ann")
            assert (await record.memory("org").entry("AGENTS.md")).label == "secret"
            async with record.run("w", agent="cyd", role="clerk") as cyd:
                with pytest.raises(hansard.NotFound):
                    await cyd.memory.view("AGENTS.md", space="org")

    asyncio.run(scenario())


def test_what_users_asked_for_rests_on_the_notes_alone(org: Record, data_dir: Path, workspace: str):
    """Proposals of users' requests have no label of a secret file that was not read."""

    async def scenario() -> None:
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            run = await ran(record, "/remember Action items last.")
            made = await reflect(record, "org", await files_of(record), run=run)
            assert ([each.text for each in made.proposals], made.label) == (
                ["- Action items last.\n"],
                "",
            )

    asyncio.run(scenario())


FUNCTION = "def quoting(findings, files):\n    return {'AGENTS.md': '- ' + files['plans.md']}\n"


@pytest.mark.parametrize("way", ["--apply", "--propose"])
def test_a_compaction_rests_on_the_files_that_its_function_was_given(
    org: Record, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    """A compaction that quotes a secret file in a public one gets the secret label."""
    (tmp_path / "shorter_by_quoting.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    made = call("memory", "compact", "org", "--with", "shorter_by_quoting:quoting", way)
    assert made.code == 0, made.err
    if way == "--propose":
        assert call("memory", "apply", "org", "last").code == 0
    assert org.memory("org").view("AGENTS.md") == f"- {SECRET}"
    assert org.memory("org").entry("AGENTS.md").label == "secret"


@pytest.mark.parametrize(
    ("others", "label"), [("", ""), ("- Answer, in bullets, and briefly, please!!!\n", "secret")]
)
def test_lines_that_go_rest_on_the_files_that_have_them_too(org, call, others, label):
    """Lines that a change removes carry the labels of the files that still have them."""
    if others:
        with org.run("w", run="r-eve", agent="eve", role="planner") as eve:
            eve.message("user", SECRET, label="secret")
            eve.memory.create("A.md", others, space="org")
    made = call("memory", "compact", "org", "--apply", "--json")
    assert msgspec.json.decode(made.out)["compacted"]["changes"].keys() == {"AGENTS.md"}
    assert org.memory("org").entry("AGENTS.md").label == label
