"""`hansard roles`: apply, show, explain, withdraw."""

import tomllib
from datetime import UTC, datetime

import pytest

from hansard.domain.roles import check as role_file
from tests.roles.test_record import EXAMPLE, team

pytestmark = pytest.mark.later


@pytest.mark.slow
def test_apply_and_show(call):
    """A new workspace works; the same rules change nothing; the shown rules can be applied
    again.
    """
    made = call("roles", "apply", EXAMPLE, "--json")
    names = ["researcher", "analyzer", "writer", "auditor"]
    assert [(line["role"], line["applied"]) for line in made.lines] == [
        (name, True) for name in names
    ]
    uncovered = {line["role"]: line["uncovered"] for line in made.lines}
    assert "agent.handed_off: payload" in uncovered["analyzer"]  # masks results of calls
    assert uncovered["researcher"] == []
    again = call("roles", "apply", EXAMPLE)
    assert again.code == 0
    assert again.out.count("has these rules already") == 4
    output = call("roles", "show", "analyzer")
    assert (
        role_file.parse(output.out)["analyzer"] == role_file.parse(EXAMPLE.read_text())["analyzer"]
    )
    assert "version 1, as of position" in output.err
    [line] = call("roles", "show", "auditor", "--json").lines
    assert line["rules"]["sees"] == [{"name": "everything", "kinds": ["**"]}]
    assert (line["standing"], line["version"], line["position"]) == ("defined", 1, 4)
    listed = call("roles", "show", "--json").lines
    assert [line["role"] for line in listed] == sorted(names)
    assert "Reads what the researcher found." in call("roles", "show").out


@pytest.mark.slow
def test_show_at_a_point(call, record):
    """A role is shown as of a position or time; a later one is not found."""
    call("roles", "apply", EXAMPLE)
    assert [line["role"] for line in call("roles", "show", "--at", "1", "--json").lines] == [
        "researcher"
    ]
    early = call("roles", "show", "writer", "--at", "2")
    assert (early.code, early.out) == (2, "")
    assert "role 'writer' at position 2 was not found: see 'hansard roles show'" in early.err
    now = datetime.now(UTC).isoformat()
    assert call("roles", "show", "writer", "--at", now).code == 0
    future = call("roles", "show", "writer", "--at", "2200-01-01T00:00:00Z")
    assert "time 2200-01-01T00:00:00Z was not found: the record ends at position" in future.err
    wrong = call("roles", "show", "writer", "--at", "w@1")
    assert "point name 'w@1' is not valid: give a position (1234) or a time" in wrong.err


def test_withdraw(call):
    """Once; with why; it is shown as withdrawn and sees nothing."""
    call("roles", "apply", EXAMPLE)
    [withdrawn] = call("roles", "withdraw", "writer", "--reason", "done", "--json").lines
    assert (withdrawn["name"], withdrawn["result"]) == ("writer", True)
    assert "is withdrawn already" in call("roles", "withdraw", "writer").out
    assert call("roles", "show", "writer").out == "# role writer is withdrawn: done\n"
    assert tomllib.loads(call("roles", "show", "writer").out) == {}
    assert call("roles", "withdraw", "nobody").code == 2


@pytest.mark.slow
def test_explain(call, record):
    """By address and by id: the deciding rule, the missing parts of each other rule, the visible
    parts.
    """
    call("roles", "apply", EXAMPLE)
    run = team(record)
    history = record._portal.run(record.workspace.states.history(run))
    [(position, index, event)] = [
        (stored.position, index, event)
        for stored in history
        for index, event in enumerate(stored.commit.events)
        if event.type == "decision.made.v1"
    ]
    other = "rule 'what was handed over'"
    output = call("roles", "explain", "writer", f"{position}.{index}")
    head, *why = output.out.splitlines()
    assert head.endswith(f"decision.made.v1 in agent/analyzer/a1 of run {run}")
    assert why == [
        "seen: rule 'what was decided' matches",
        "rule 'its own work' does not match: roles: 'analyzer' is none of 'writer'",
        f"{other} does not match: kinds: decision.made.v1 is none of 'agent.handed_off'",
        "shown: question, selected, because",
        "not shown, since it reveals other events or fields: fingerprint",
        "mask 'reasons in short': truncate to 80 because",
    ]
    by_id = call("roles", "explain", "researcher", event.id, "--json").lines
    assert [(line["seen"], line["rule"], line["address"]) for line in by_id] == [
        (False, None, f"{position}.{index}")
    ]
    begun = call("roles", "explain", "analyzer", f"{history[0].position}.0", "--json").lines
    assert begun[0]["seen"] is False
    [joined] = call("roles", "explain", "researcher", f"{history[0].position}.1", "--json").lines
    assert (joined["type"], joined["rule"]) == ("run.agent_joined.v1", "its own work")
    before = call("roles", "explain", "writer", event.id, "--at", "1", "--json").lines
    assert before[0]["why"] == [
        "not seen: the role has no rules, and only events that a rule allows are seen"
    ]


@pytest.mark.parametrize("event", ["nothing", "1.7", "999999.0"])
def test_an_event_that_is_not_there(call, event):
    """An unknown event is refused, with the valid form."""
    call("roles", "apply", EXAMPLE)
    output = call("roles", "explain", "writer", event)
    assert (output.code, output.out) == (2, "")
    assert "was not found" in output.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[roles.a]\nx = 1", "role 'a': it has no field 'x'"),
        (b"\xff", "it is no UTF-8"),
        (b"#" * (1024 * 1024 + 1), "more than 1,048,576 bytes"),
        (
            b'[roles.good.may]\n[[roles.bad.sees]]\nname="n"',
            "role 'bad': rule 'n': it has no match",
        ),
    ],
)
def test_a_broken_file_changes_nothing(call, tmp_path, text, message):
    """No role of it is applied, though another may be in order."""
    path = tmp_path / "roles.toml"
    path.write_bytes(text)
    output = call("roles", "apply", path)
    assert (output.code, output.out) == (2, "")
    assert message in output.err
    assert call("roles", "show", "good").code == 2
    assert "No such file" in call("roles", "apply", tmp_path / "absent").err
