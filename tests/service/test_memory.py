"""Memory over the service: hidden files are in no listing, search, count or error."""

import threading
import time

import pytest

import hansard
from tests.service.support import ALL, House

READER = """
[roles.reader]
clearance = "internal"
[[roles.reader.sees]]
name = "notes"
kinds = ["memory.*"]
paths = ["org/notes/**"]
[[roles.reader.sees]]
name = "own work"
roles = ["reader"]
[roles.reader.may]
tools = ["**"]
kinds = ["message.*"]
paths = ["org/notes/**", "org/pay/**"]
"""
HIDDEN = ("pay", "Zanzibar", "NOTES", "secret plan")
"""Texts in the hidden paths, contents and reasons."""


@pytest.fixture
def filled(house: House) -> House:
    """Return a workspace with visible files beside hidden files and links."""
    house.apply(ALL + READER)
    with house.trusted() as record:
        org = record.memory("org")
        org.set_policy("off", by="eve")
        org.create("notes/a.md", "Zebras have stripes.\n", by="eve", reason="seen")
        org.create("pay.md", "Zebras of Zanzibar\n", by="eve", reason="secret plan")
        with org.change("secret plan of both", by="eve") as change:
            change.create("pay/b.md", "Zebras of Zanzibar\n")
            change.create("notes/both.md", "both\n")
        org.create("pay/moved.md", "moved\n", by="eve", reason="secret plan")
        with org.change("secret plan moved", by="eve") as change:
            change.rename("pay/moved.md", "notes/moved.md")
        org.create("NOTES2/case.md", "x\n", by="eve")
        with record.run("w", run="made", agent="zoe", role="boss") as zoe:
            zoe.message("user", "secret", label="secret")
            record.memory("org")
            zoe.memory.create("notes/secret.md", "Zebras of Zanzibar\n", space="org")
    return house


def text_of(work: object) -> str:
    """Return the text of a result or error."""
    try:
        return repr(work() if callable(work) else work)
    except hansard.HansardError as error:
        return f"{type(error).__name__}: {error} {error.args}"


def clean(text: str) -> None:
    """Check that no hidden text occurs in it."""
    assert not [word for word in ("pay.md", "pay/m", *HIDDEN[1:]) if word in text], text


def test_a_live_session_leaks_nothing_of_what_its_role_does_not_see(filled: House) -> None:
    """Reads, searches, refusals and conflicts of a session, and of `record.memory`."""
    with filled.connect("rita", "reader") as record:
        with record.run("w", run="r") as session:
            memory = session.memory
            assert memory.ls() == ["notes/a.md", "notes/both.md", "notes/moved.md"]
            assert [hit.path for hit in memory.search("zebras").hits] == ["notes/a.md"]
            assert memory.search("zebras", kind="procedural").hits == []
            assert [hit[0] for hit in memory.grep("Zebras")] == ["notes/a.md"]
            never = text_of(lambda: memory.view("never.md", space="org"))
            for path in ("pay.md", "pay/b.md"):
                hidden = text_of(lambda path=path: memory.view(path, space="org"))
                assert hidden.replace(path, "X") == never.replace("never.md", "X")
            secret = text_of(lambda: memory.view("notes/secret.md", space="org"))
            assert secret.replace("notes/secret.md", "X") == never.replace("never.md", "X")
            [moved] = memory.history("notes/moved.md", space="org")
            assert (moved.op, moved.because, moved.version, moved.position) == ("created", "", 0, 0)
            answers = [
                text_of(memory.prompt),
                text_of(lambda: memory.history("notes/both.md", space="org")),
                text_of(lambda: memory.entry("notes/a.md", at="@3")),
                text_of(lambda: memory.entry("notes/a.md", at="3")),
                text_of(lambda: memory.create("notes/secret.md", "mine\n", space="org")),
                text_of(lambda: memory.revert(moved.event, space="org")),
                text_of(lambda: memory.revert("@3", space="org")),
                text_of(lambda: memory.create("notes/l.md", "../pay.md", link=True, space="org")),
                text_of(session.view),
            ]
            memory.edit("notes/a.md", "stripes", "spots")
            assert memory.view("notes/a.md") == "Zebras have spots.\n"
        org = record.memory("org")
        assert [each.path for each in org.entries()] == memory_paths(org)
        org.create("notes/mine.md", "mine\n", by="rita")
        answers += [
            text_of(lambda: org.view("notes/secret.md")),
            text_of(lambda: [each.because for each in org.history()]),
            text_of(lambda: org.blame("notes/moved.md")),
            text_of(lambda: org.diff(before="2020-01-01T00:00:00Z")),
            text_of(lambda: org.create("notes/secret.md", "mine\n", by="rita")),
        ]
        with pytest.raises(hansard.errors.RoleRefused):
            org.create("pay/b.md", "mine\n", by="rita")
        with pytest.raises(hansard.errors.NotOffered):
            org.create("notes/x.md", "mine\n", by="eve")
    for each in answers:
        clean(each.replace("../pay.md", ""))


def memory_paths(org: object) -> list[str]:
    """Return the paths of all changes that are shown, each once."""
    return sorted({each.path for each in org.history()})  # type: ignore[attr-defined] # either client's


def test_a_link_leads_nobody_past_the_rules(filled: House) -> None:
    """Another agent's link in a writable folder gives no access to hidden files."""
    with filled.trusted() as record:
        change = record.memory("org")
        with change.change("a link", by="eve") as edit:
            edit.create("notes/way.md", "../pay.md", link=True)
    with filled.connect("rita", "reader") as record, record.run("w", run="r") as session:
        with pytest.raises(hansard.NotFound):
            session.memory.view("notes/way.md", space="org")
        with pytest.raises(hansard.NotFound):
            session.memory.edit("notes/way.md", "Zebras", "Ants", space="org")
        with pytest.raises(hansard.errors.RoleRefused):
            session.memory.create("notes/way.md", "mine\n", space="org")
    with filled.trusted() as record:
        assert record.memory("org").view("pay.md") == "Zebras of Zanzibar\n"


def test_a_case_twin_of_what_is_hidden_is_not_named(filled: House) -> None:
    """A path that differs by case from a hidden one is refused without naming it."""
    roles = READER.replace('"org/notes/**"', '"org/notes2/**"')
    filled.apply(ALL + roles)
    with (
        filled.connect("rita", "reader") as record,
        record.run("w", run="r") as session,
        pytest.raises(hansard.BadValue) as refused,
    ):
        session.memory.create("notes2/case.md", "mine\n", space="org")
    assert "NOTES2" not in str(refused.value)
    assert "cannot stand there so" in str(refused.value)


def test_a_change_of_a_restricted_agent_waits_for_a_person(house: House) -> None:
    """By default; granted it is made. Outside of a session it is refused."""
    with house.trusted() as trusted:

        def grant() -> None:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                waits = trusted.approvals.list()
                if waits:
                    trusted.approvals.grant(waits[0].approval.id, by="eve")
                    return
                time.sleep(0.05)

        house.login()
        other = threading.Thread(target=grant)
        other.start()
        with house.connect() as record:
            with record.run("w", run="r") as session:
                session.memory.remember("Use bullets.")
            other.join()
            assert record.memory("agent/ada").view("AGENTS.md") == "- Use bullets.\n"
            with pytest.raises(hansard.Blocked, match="need approval"):
                record.memory("agent/ada").remember("Never.", by="ada")
        assert trusted.memory("agent/ada").view("AGENTS.md") == "- Use bullets.\n"


def test_the_clients_own_rules_hold_for_its_memory(house: House) -> None:
    """A rule of the gate in the client's program refuses a change, on record, as ever."""
    gate = [hansard.deny("memory.change", name="no memory")]
    with house.trusted() as record:
        record.memory("agent/ada").set_policy("off", by="eve")
    house.login()
    with house.connect(gate=gate) as record, record.run("w", run="r") as session:
        with pytest.raises(hansard.Blocked) as refused:
            session.memory.remember("Use bullets.")
        assert refused.value.rule == "no memory"
        assert session.memory.ls() == []
