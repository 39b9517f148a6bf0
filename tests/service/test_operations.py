"""Each declared operation is answered, refuses invalid requests, and needs what it declares."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.agents.policy.permits import Need, Permit
from hansard.bus.portal import portal
from hansard.client.restricted.link import Link, SessionLink
from hansard.domain.actions import FORMAT
from hansard.domain.roles import check as role_file
from hansard.domain.roles.authorize import Trust, unversioned
from hansard.operations import declare
from hansard.operations import session as declared
from hansard.operations.declare import Kind, Operation
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.protocol.wire import Answer, BlockExit, Do, Failed, Open
from hansard.operations.session import OPERATIONS, of_slices, read
from hansard.service import hosted
from hansard.service.hosted import BLOCKS
from hansard.service.workspace_requests import RoleRecord
from tests.service._exchange import request
from tests.service.support import House

NAMES = sorted(OPERATIONS | of_slices())
CLAIM = {"is": "claim", "id": "t1", "number": 1}
END = {"success": True, "duration": 0.0}
SAMPLES: dict[str, tuple[Any, ...]] = {
    "record.roles.view": ("r1",),
    "record.roles.permitted": (),
    "record.roles.viewable": (),
    "record.sql": ("SELECT 1",),
    "record.savings": (),
    "record.experiments.compare": ({"experiment": "e"},),
    "record.audit": ({},),
    "record.why": ("r1",),
    "record.approvals.grant": ("0" * 32,),
    "record.approvals.deny": ("0" * 32,),
    "record.settle": ("r1", "ada#1", "happened"),
    "record.reopen": ("r1", "t1"),
    "record.finish": ("r1",),
    "record.cancel": ("r1",),
    "record.prompts.get": ("greeting",),
    "record.prompts.list": (),
    "record.prompts.add": ("greeting", "Answer {name}."),
    "record.prompts.alias": ("greeting@1", "production"),
    "record.prompts.give_feedback": ("greeting@1", "too_verbose"),
    "record.prompts.retire": ("greeting@1",),
    "record.prompts.report": (),
    "record.egress": ("r1",),
    "record.experiences.list": (),
    "record.experiences.find": ("invite a guest",),
    "record.experiences.get": ("invite",),
    "record.experiences.log": ("invite",),
    "record.experiences.confirm": ("invite", [], "", "looked at"),
    "record.experiences.retire": ("invite", "the page is gone"),
    "record.prompts.promote": ("greeting@1", "production", None, "for a test"),
    "record.invalidate": ("search", "", "", "the index was rebuilt"),
    "record.actions.keep": ("form", {"actions": [], "finalState": END, "format": FORMAT}),
    "record.actions.get": ("form",),
    "record.actions.list": (),
    "record.actions.log": ("form",),
    "record.actions.revert": ("form", 1),
    "record.actions.review": ("form",),
    "record.memory.entry": ("org", "notes/a.md"),
    "record.memory.entries": ("org",),
    "record.memory.history": ("org", "notes/a.md"),
    "record.memory.diff": ("org", None, "2026-11-24T12:00:00Z"),
    "record.memory.blame": ("org", "notes/a.md"),
    "record.memory.change": ("org", [{"op": "append", "path": "notes/c.md", "text": "x"}], "why"),
    "record.memory.revert": ("org", "0" * 32),
    "record.agents_sessions.items": ("s1",),
    "record.claude.append": ("lab", "s1", [{"type": "user", "uuid": "1"}]),
    "record.claude.delete": ("lab", "s1"),
    "record.claude.list": ("lab",),
    "record.claude.load": ("lab", "s1"),
    "record.claude.subkeys": ("lab", "s1"),
    "record.otel.settle": (),
    "record.share.read": ("0" * 32, "r1"),
    "session.view": (),
    "facts.checkpoint": ("half", {}),
    "facts.checkpoint_data": ("half",),
    "facts.latest_checkpoint": (),
    "facts.decide": ("which", "this"),
    "facts.message": ("user", "hi", None, {}),
    "facts.resource": ("file:///x", "read"),
    "facts.hand_off": ("eve", "", {}),
    "facts.context": (),
    "board.entry": ("k",),
    "board.keys": (),
    "board.put": ("k", 1, "any"),
    "board.append": ("list", 1),
    "board.add": ("sum", 1),
    "board.include": ("set", 1),
    "board.discard": ("set", 1),
    "board.merge": ("most", "max", 1),
    "board.remove": ("k", "any"),
    "board.transaction": (),
    "transaction.get": ("k",),
    "transaction.put": ("k", 1),
    "transaction.append": ("list", 1),
    "transaction.add": ("sum", 1),
    "transaction.include": ("set", 1),
    "transaction.discard": ("set", 1),
    "transaction.merge": ("most", "max", 1),
    "transaction.remove": ("k",),
    "transaction.roll_back": ("no",),
    "memory.entry": ("notes/a.md", "org"),
    "memory.ls": ("notes",),
    "memory.glob": ("notes/**",),
    "memory.grep": ("bullets",),
    "memory.search": ("bullets",),
    "memory.prompt": (),
    "memory.news": (),
    "memory.history": ("notes/a.md", "org"),
    "memory.create": ("notes/a.md", "Bullets.\n", "why", "org", [], False),
    "memory.edit": ("notes/a.md", "Bullets", "Short bullets", "why", "org", []),
    "memory.insert": ("notes/a.md", 0, "First.\n", "why", "org", []),
    "memory.rename": ("notes/a.md", "notes/b.md", "why", "org"),
    "memory.delete": ("notes/b.md", "why", "org"),
    "memory.remember": ("Two pages.", "notes/c.md", "org"),
    "memory.change": ([{"op": "append", "path": "notes/c.md", "text": "x"}], [], "why", "org"),
    "memory.revert": ("0" * 32, "why", "org"),
    "team.add": ("to do",),
    "team.claim": (),
    "team.claimed": (),
    "team.extend": (CLAIM,),
    "team.complete": (CLAIM,),
    "team.fail": (CLAIM, "no"),
    "team.release": (CLAIM,),
    "team.hand_off": (CLAIM, "writer"),
    "team.reopen": ("t1",),
    "team.tasks": (),
    "team.wait_for": ("k", None, 0.01),
    "team.send": ("hi", None, "eve"),
    "team.inbox": (),
    "loop.begin": ("items", 1),
    "loop.skips": (1,),
    "loop.done": (),
    "loop.leave": (),
    "loop.end": (),
}
"""A request of each, its fields in their order."""

BEFORE: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "transaction": [("board.transaction", ())],
    "loop": [("loop.begin", ("items", 1))],
    "loop.end": [("loop.begin", ("items", 2)), ("loop.skips", (1,)), ("loop.done", ())],
}
"""Requests that precede those of a group, or a single one."""

OWN = '[[roles.{role}.sees]]\nname = "own work"\nroles = ["{role}"]\n'
ROLES = {
    "nothing": "",
    "claims": 'kinds = ["task.claimed"]',
    "states": 'kinds = ["**"]',
    "writes": 'keys = ["**"]',  # which it sees
    "trusted": "approve = true\nsettle = true\nquery = true",
}
"""Permissions of roles that see their own work, one of them also the board."""

BOARD = '[[roles.writes.sees]]\nname = "board"\nkinds = ["board.*"]\nkeys = ["**"]\n'


WRONG = [{"x": [1]}]
"""Values that fit no field and are no program's value."""


def text_of(names: dict[str, str]) -> str:
    """Return these roles as the text of a roles file."""
    text = ""
    for role, may in names.items():
        sees = OWN.format(role=role) + (BOARD if role == "writes" else "")
        text += f"[roles.{role}]\n{sees}[roles.{role}.may]\n{may}\n"
    return text


class Asking:
    """A principal, and a session of its."""

    def __init__(self, link: Link, session: SessionLink) -> None:
        self._link = link
        self._session = session

    def ask(self, operation: Operation, message: Any, context: int = 0) -> Answer:
        """Return the answer to a request in its context."""
        if operation.group == "record":
            return portal().run(self._link.outside(operation.verb, message))
        verb = "enter" if operation.name in BLOCKS else "do"
        return portal().run(self._session.ask(verb, Do(operation=message, context=context)))

    def answers(self, name: str, *values: Any) -> Iterator[Answer]:
        """Yield the answers of an operation, with the block that it needs or begins."""
        operation = OPERATIONS[name]
        opens, *before = BEFORE.get(name, BEFORE.get(operation.group, [("", ())]))
        if opens[0] not in ("", name):
            opened: Any = self.ask(OPERATIONS[opens[0]], request(opens[0], *opens[1]))
            yield opened
            for each, args in before:
                yield self.ask(OPERATIONS[each], request(each, *args), opened.context)
            yield self.ask(operation, request(name, *values), opened.context)
            if operation.group == "transaction":
                yield self.exit(opened.context)
            return
        answer: Any = self.ask(operation, request(name, *values))
        yield answer
        if name in BLOCKS and not isinstance(answer, Failed):
            yield self.exit(answer.context)

    def exit(self, context: int) -> Answer:
        """Leave a block."""
        return portal().run(self._session.ask("exit", BlockExit(context=context)))


def asking(house: House, name: str, role: str, run: str) -> Iterator[Asking]:
    """Yield a principal in a role, with a session in a run."""
    with house.link(name, role) as link:
        session = portal().run(link.open_session(Open(workflow="w", run=run, agent=name)))
        try:
            yield Asking(link, session)
            portal().run(session.ask("close", BlockExit()))
        finally:
            portal().run(session.end())


@pytest.fixture
def ada(house: House) -> Iterator[Asking]:
    """Yield a principal that may do everything without approval."""
    house.login()
    with house.trusted() as record:
        for space in ("agent/ada", "org"):
            record.memory(space).set_policy("off", by="eve")
    yield from asking(house, "ada", "writer", "r1")


def refusal(answer: Answer) -> Any:
    """Return the error in an answer, or None."""
    return faults.ours(answer.fault) if isinstance(answer, Failed) else None


def test_each_is_answered() -> None:
    """Each operation has a sample here, and a method of its name."""
    assert sorted(SAMPLES) == NAMES
    answers = {**hosted.ANSWERS, "record": RoleRecord}
    assert {each.group for each in OPERATIONS.values()} == set(answers)
    hosted.demand_handlers(hosted.ANSWERS)


class Silent:
    """Answers nothing."""


class Another:
    """Answers with other fields."""

    def keys(self, prefix: str) -> None:
        """List keys; declared without a prefix."""


def test_none_is_served_without_its_answer() -> None:
    """The service does not start with an operation that is unanswered or answered with other
    fields.
    """
    with pytest.raises(TypeError, match=r"Silent has no \w+ for board\.\w+"):
        hosted.demand_handlers({"board": Silent})
    only = {name: each for name, each in OPERATIONS.items() if name == "board.keys"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declared, "OPERATIONS", only)
        with pytest.raises(TypeError, match=r"board\.keys is declared with fields"):
            hosted.demand_handlers({"board": Another})


@pytest.mark.parametrize("name", NAMES)
def test_a_request_comes_back_as_it_was_made(name: str) -> None:
    """A request encoded by a client's declaration is decoded equal by the service."""
    operation, message = read(request(name, *SAMPLES[name]))
    assert operation is OPERATIONS[name]
    assert isinstance(message, operation.request)
    again = msgspec.Raw(wire.encode(message))
    assert wire.encode(read(again)[1]) == bytes(again)


def wrong_requests(operation: Operation) -> Iterator[tuple[Any, str]]:
    """Yield invalid requests of an operation, each with the text that its error names."""
    fields = dict(zip(operation.fields, SAMPLES[operation.name], strict=False))
    fields = {"op": operation.name, **fields}
    yield {**fields, "colour": 1}, f"{operation.called}(colour)"
    for field, kind in operation.fields.items():
        place = f"{operation.called}({field})"
        if kind is Kind.VALUE:
            # A claim of another's is refused before.
            if CLAIM not in fields.values():
                yield {**fields, field: {"$tuple": 3}}, ""
        else:
            yield {**fields, field: WRONG if kind is not Kind.VALUES else 3}, place
        if field in operation.request.__struct_fields__[: _needed(operation)]:
            yield {key: each for key, each in fields.items() if key != field}, place


def _needed(operation: Operation) -> int:
    config = operation.request.__struct_defaults__
    return len(operation.fields) - len(config)


def test_what_none_takes_is_refused(ada: Asking) -> None:
    """An unknown, missing or mistyped field is a BadValue that names it."""
    requests = 0
    for name in NAMES:
        for fields, place in wrong_requests(OPERATIONS[name]):
            error = refusal(ada.ask(OPERATIONS[name], msgspec.Raw(msgspec.json.encode(fields))))
            assert type(error).__name__ == "BadValue", (fields, error)
            assert place in str(error), (fields, error)
            requests += 1
    assert requests > 2 * len(NAMES)
    assert refusal(ada.ask(OPERATIONS["facts.context"], request("facts.context"))) is None


HUGE = b'"' + b"x" * 500_000 + b'"'
DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("huge", "fields_max", "step"),
    [
        pytest.param(HUGE, 1, 9, id="long"),
        pytest.param(HUGE, None, 1, id="long-each", marks=pytest.mark.thorough),
        pytest.param(DEEP, None, 7, id="deep"),
        pytest.param(DEEP, None, 1, id="deep-each", marks=pytest.mark.thorough),
    ],
)
def test_what_is_huge_ends_nothing(ada, huge, fields_max, step):
    """Huge and deep fields are taken or refused by name, and the session goes on."""
    for name in NAMES[::step]:
        operation = OPERATIONS[name]
        for field in [*list(operation.fields)[:fields_max], "colour"]:
            values = dict(zip(operation.fields, SAMPLES[name], strict=False))
            encoded = {key: wire.dump(each) for key, each in values.items()}
            fields = {"op": name, **encoded, field: msgspec.Raw(huge)}
            error = refusal(ada.ask(operation, msgspec.Raw(wire.encode(fields))))
            assert type(error).__name__ not in ("ServiceFailed", "ServiceGone"), (name, field)
    assert refusal(ada.ask(OPERATIONS["facts.context"], request("facts.context"))) is None


@pytest.mark.fast(cases=1, slow=1)
@pytest.mark.parametrize("role", [*ROLES, "writer"])
def test_each_needs_what_it_says(house: House, role: str) -> None:
    """Each operation is refused exactly for the need that it declares."""
    house.apply(text_of(ROLES))
    with house.trusted() as record, record.run("w", run="r1", agent="eve", role="boss") as eve:
        record.memory("org").set_policy("off", by="eve")
        for number in range(12):
            eve.team.add(f"task {number}")
        house.login("ada", role)
        for who in asking(house, "ada", role, "r1"):
            for name in NAMES:
                _check_needs(who, OPERATIONS[name], _permit(role))


def _permit(role: str) -> Permit:
    rules = role_file.parse(text_of(ROLES)) if role in ROLES else {}
    return Permit(role, rules.get(role), enforced=role in ROLES)


def _check_needs(who: Asking, operation: Operation, permit: Permit) -> None:
    sample = SAMPLES[operation.name]
    if CLAIM in sample:
        claimed = [*who.answers("team.claim")]
        task = wire.load(claimed[0].value) if isinstance(claimed[0], wire.Value) else None
        if task is None:
            return  # the role claims none
        claim = {"is": "claim", "id": task["id"], "number": task["number"]}
        sample = (claim, *sample[1:])
    _, message = read(request(operation.name, *sample))
    denied = [each for each in operation.needs(message) if not permit.ask(each).allowed]
    errors = [refusal(each) for each in who.answers(operation.name, *sample)]
    refused = [(each.what, each.name) for each in errors if type(each).__name__ == "RoleRefused"]
    assert refused[:1] == [(each.what, each.name) for each in denied][:1], (operation.name, errors)


# ------------------------------------------------------------ documents


def needed(need: Need) -> str:
    """Return a role's need as the documents word it."""
    match need.what:
        case "kind":
            return f'`kinds = ["{unversioned(need.name)}"]`'
        case "key":
            return "`keys`, and to see all of the key"
        case "read":
            return "to see all of the key"
        case "prompt":
            return "to see all of prompts"
        case "actions":
            return "to see all of action caches"
        case "experiences":
            return "to see all of experiences"
        case "change":
            return "`paths`, and to see all of the file"
        case "task":
            return "to see the tasks of that role"
        case _:
            return f"`{Trust(need.what).value} = true`"


def table() -> list[str]:
    """Return the documents' table: each need of a role, and the operations with it."""
    by_need: dict[str, list[str]] = {}
    for operation in OPERATIONS.values():
        _, message = read(request(operation.name, *SAMPLES[operation.name]))
        needs = "; ".join(dict.fromkeys(map(needed, operation.needs(message)))) or "nothing"
        by_need.setdefault(needs, []).append(f"`{operation.name}`")
    return [f"| {needs} | {', '.join(names)} |" for needs, names in sorted(by_need.items())]


def test_documents_say_what_each_needs() -> None:
    """The table of operations in docs/service.md is that of the declarations."""
    text = Path(__file__).parents[2].joinpath("docs/service.md").read_text()
    _, _, section = text.partition("## Permissions by operation")
    section, _, _ = section.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == table()


def test_what_only_a_trusted_program_gives_is_refused_before_it_is_sent() -> None:
    """The error names the operation and the parameter; its default is sent."""
    refused = 0
    for operation in OPERATIONS.values():
        for name in operation.here.parameters.keys() - operation.signature.parameters.keys():
            values = dict(zip(operation.fields, SAMPLES[operation.name], strict=False))
            default = operation.here.parameters[name].default
            assert isinstance(
                operation.build_request((), {**values, name: default}, None), operation.request
            )
            with pytest.raises(NotOffered, match=rf"record\.[\w.]+\({name}=\)"):
                operation.build_request((), {**values, name: "eve"}, None)
            refused += 1
    assert refused > 15


def test_an_operation_states_what_it_needs() -> None:
    """A declaration without its needs is an error."""
    with pytest.raises(TypeError, match="needs"):
        declare.operation()  # type: ignore[call-arg]  # what is to be refused


def test_evolving_in_the_name_of_another_is_refused_before_the_function_runs(house: House) -> None:
    """A restricted agent acts as its principal; a function may ask a model, which costs."""
    house.login()
    ran: list[str] = []

    def shorter(_: object, feedback: str) -> str:
        ran.append(feedback)
        return "short"

    with (
        house.connect() as record,
        pytest.raises(NotOffered, match=r"record\.prompts\.evolve\(by=\)"),
    ):
        record.prompts.evolve("rag", "too long", using=shorter, by="eve")
    assert ran == []
