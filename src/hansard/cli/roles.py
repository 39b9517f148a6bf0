"""Commands `hansard roles`, `credentials`, `knew`, `principals` and `approvals`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hansard.agents.access import principals as logins
from hansard.agents.access import roles as role_rules
from hansard.agents.access.roles import View
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.cli import output
from hansard.cli.common import At, By, Commands, Json, Reason, Run, argument, do, flag, option
from hansard.cli.derived import derive
from hansard.cli.opening import address_of, answering, beginning, reading, reading_run, settings
from hansard.cli.output import Column, Hint, Part
from hansard.cli.run import agent_lines
from hansard.client.credentials import (
    CreatedCredentials,
    CredentialsRequest,
    acting_for,
    make,
    sync_broker,
)
from hansard.client.record import AsyncRecord
from hansard.client.unfinished import note_waiting
from hansard.domain import ids
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.ids import run_of
from hansard.domain.principal import PrincipalKind
from hansard.domain.roles import check as role_file
from hansard.domain.run import RunStatus
from hansard.inspect import roles as reads
from hansard.inspect.answer import find_run, role_names
from hansard.inspect.roles import (
    Knowledge,
    Moment,
    Question,
    RoleExplanation,
    RoleView,
    Validity,
    list_approvals,
    list_logins,
)
from hansard.inspect.trace import recorded
from hansard.operations.roles import Approvals, Roles

app = Commands()
roles = Commands()
principals = Commands(
    help="List principals and their tokens; revoke access.", invoke_without_command=True
)
approvals = Commands(
    help="List calls that wait for approval; grant or deny them.", invoke_without_command=True
)

Role = Annotated[str, argument("ROLE", "The role.")]
RoleAt = Annotated[
    str | None,
    option("The rules as of a position (1234) or a time (2026-11-21T10:00:00Z).", "POINT"),
]

REMEDY = "see 'hansard roles show'"


@roles.command()
async def apply(
    file: Annotated[Path, argument("FILE.toml", "Roles and their rules.")], by: By = OS_USER
) -> None:
    """Set the rules of roles from a file.

    Each role of the file gets exactly the rules there, after all were checked. Other roles stay as
    they are.
    """
    rules = role_rules.read_file(file)
    async with beginning() as workspace:
        for name, is_new in (await role_rules.apply_all(workspace, rules, by=by)).items():
            text = f"role {name} has these rules{'' if is_new else ' already'}"
            texts = role_rules.uncovered(rules[name])
            answer = {"role": name, "applied": is_new, "uncovered": texts}
            output.show(answer, [text, *_uncovered(texts)])


@roles.command()
async def show(
    role: Annotated[str | None, argument("[ROLE]", "Role to print [list all roles].")] = None,
    at: RoleAt = None,
) -> None:
    """Print a role's rules as a file, or list the roles.

    The file can be applied again.
    """
    names = [role] if role is not None else []
    if role is None:
        async with answering() as reader:
            names = role_names(reader)
    async with reading() as workspace:
        listing = await reads.read_roles(workspace, names, at)
    if role is not None and not listing.roles:
        raise NotFound(f"role {role!r} at position {listing.position}", REMEDY)
    output.show(listing, _list(listing) if role is None else _rules(listing))


LIST = output.columns(
    "role! standing version> rules> masks> about~",
    rules=lambda role: len(role.rules.sees) if role.rules else None,
    masks=lambda role: len(role.rules.masks) if role.rules else None,
    about=lambda role: role.rules.about if role.rules else None,
)


def _list(listing: reads.Roles) -> list[Part]:
    return [
        output.listing(LIST, listing.roles, "no role has rules"),
        Hint(f"as of position {listing.position}"),
    ]


def _rules(listing: reads.Roles) -> Iterator[Part]:
    """Yield each role as a file that can be applied."""
    for role in listing.roles:
        yield Hint(f"version {role.version}, as of position {listing.position}")
        yield _file(role)
        yield from _uncovered(role_rules.uncovered(role.rules) if role.rules is not None else [])


def _uncovered(fields: list[str]) -> Iterator[Part]:
    """Yield a hint on the fields in which masks of calls do not hold."""
    if fields:
        yield Hint(
            "its masks of calls hide a value at their paths alone; a copy of it is shown where a "
            "program, an error or another call's arguments or result repeats it: "
            f"{'; '.join(fields)}; mask such a field as a whole: a mask of its own, with these "
            "kinds and fields"
        )


def _file(role: reads.Role) -> str:
    if role.rules is None:
        return f"# role {role.role} is withdrawn{f': {role.because}' if role.because else ''}"
    return role_file.write({role.role: role.rules}).rstrip("\n")


# ---------------------------------------------------------------- explain


@roles.command()
async def explain(
    role: Role,
    event: Annotated[str, argument("EVENT", "An event's id, or its address (position.index).")],
    at: RoleAt = None,
) -> None:
    """Explain why a role may or may not see an event.

    Names the rule that lets it, and the unmet condition of every other rule.
    """
    ids.name("role", role)
    address = await address_of(event)
    async with reading() as workspace:
        explanation = await reads.explain(workspace, role, address, at)
    output.show(explanation, _render_explanation(explanation))


def _render_explanation(report: RoleExplanation) -> list[Part]:
    facts, run = report.explanation, run_of(report.stream)
    where = f"{report.stream} of run {run}" if run is not None else f"{report.stream}"
    return [f"role {facts.role}, event {facts.address}: {facts.type} in {where}", *facts.why]


@app.command()
async def credentials(
    role: Annotated[str, argument("ROLE", "The role; it must have rules.")],
    name: Annotated[str | None, option("Principal of the login [the role's name].", "NAME")] = None,
    kind: Annotated[
        Literal["agent", "person", "service"] | None, option("Kind of a new principal [agent].")
    ] = None,
    expires: Annotated[str, option("Validity: 12h, 30d, 8w, never.", "LIFE")] = "30d",
    path: Annotated[
        Path | None, option("File to write [hansard-NAME.json].", "FILE", "--output", "-o")
    ] = None,
    about: Annotated[str, option("For the record.", "TEXT")] = "",
    on_behalf_of: Annotated[
        list[str] | None, option("Principal it acts for, the nearest first. Repeatable.", "NAME")
    ] = None,
    http: Annotated[
        str | None,
        option("Reach the service by 'hansard up --http' at this address, not the broker.", "URL"),
    ] = None,
    by: By = OS_USER,
) -> None:
    """Create a login that reaches the service in one role.

    It reaches nothing else. The file is private to its owner. Run again, the command completes what
    was cut off, and keeps valid credentials.
    """
    target = CredentialsRequest(
        role=role,
        name=name,
        kind=kind,
        expires=expires,
        output=path,
        about=about,
        by=by,
        on_behalf_of=tuple(on_behalf_of or ()),
        http=http,
    )
    _print_credentials(await make(settings(), target))


def _print_credentials(made: CreatedCredentials) -> None:
    output.show(made, _render_credentials(made))


def _render_credentials(report: CreatedCredentials) -> Iterator[Part]:
    text = "are in" if report.new else "are there already, in"
    yield f"credentials of principal {report.principal}, role {report.role}, {text}:"
    yield f"  {report.file}"
    if report.on_behalf_of:
        yield f"acts {acting_for(report.on_behalf_of)}"
    yield f"valid until {report.expires or 'they are revoked'}; token {report.token}"
    if report.broker_entry is None:
        yield Hint(
            "anyone who has the file can log in with it: it is neither shown again nor recorded"
        )
        return
    yield Hint("the broker is external: add this to the users of its account, and reload it")
    yield report.broker_entry


HashKey = Annotated[
    Path | None,
    option("File of 32 or more secret bytes, for masks that hash [the role's own key].", "FILE"),
]

EVENTS_SHOWN_MAX = 50
"""Most events of a view shown, the newest; `--json` has all."""

KEY_BYTES_MAX = 4_096
"""Longest file with a key for hashed values, in bytes."""

EVENTS = (
    Column("", lambda row: str(row[0]), right=True),
    Column("event", lambda row: row[1].type.rpartition(".")[0], whole=True),
    Column("agent", lambda row: row[1].agent, short=True),
    Column("key", lambda row: row[1].key, short=True),
    Column("data", lambda row: output.preview(recorded(row[1].data))),
)


@roles.command()
async def view(
    role: Annotated[str, argument("ROLE", "The role.")],
    which: Run,
    at: At = None,
    key: HashKey = None,
    by: Annotated[str, option("The reader.", "NAME", show_default=False)] = OS_USER,
) -> None:
    """Show what a role may see of a run.

    Now, or at a point by the rules of that time. Events have the role's own numbers. Each use is
    recorded.
    """
    secret = _hash_key(key)
    async with reading_run(which) as (workspace, run):
        served = await reads.role_view(workspace, role, run, at, by, secret)
    output.show(served, _render_view(served))


def _render_view(served: RoleView) -> Iterator[Part]:
    made, facts = served.made, served.made.view
    yield f"run {facts.run} as role {facts.role} sees it: {counted(len(facts.events), 'event')}"
    yield ""
    yield from _events(facts)
    if not made.rules:
        yield Hint(
            f"role {facts.role!r} has no rules there, and sees nothing: see 'hansard roles apply'"
        )
    yield Hint(f"as of position {made.position}, digest {facts.digest or 'of nothing'}")


def _hash_key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise BadValue("key", str(error), "give a file of 32 secret bytes or more") from error


def _events(facts: View) -> Iterator[Part]:
    shown = facts.events[-EVENTS_SHOWN_MAX:]
    if shown:
        yield output.listing(EVENTS, shown)
    more = len(facts.events) - len(shown)
    if more > 0:
        yield f"and {more:,} earlier: --json has them"
    for name, entry in facts.state.board.items():
        note = "" if entry.is_whole else " (part of it is hidden)"
        yield f"key {name}: {output.preview(entry.value)}{note}"


@app.command()
async def knew(
    moment: Annotated[
        str,
        argument(
            "DECISION|EVENT|RUN[@POINT]",
            "An event's id or its address (position.index): the agent before it. A run's id, or "
            "'last': before its newest decision, or else at its end. With a point of the run "
            "(last@1234): the agent that acted last.",
        ),
    ],
    role: Annotated[
        str | None, option("As this role sees it, not the agent's own.", "ROLE")
    ] = None,
    rules: Annotated[
        str | None,
        option("Use the role's rules at a position, a time or 'now' [at the decision].", "POINT"),
    ] = None,
    key: HashKey = None,
) -> None:
    """Show what an agent knew when it decided.

    Shows its state, what its role could see (with the role's own numbers), and the views that it
    had been given. With another role, its state is left out: no mask is applied to it.
    """
    secret = _hash_key(key)
    async with reading() as workspace:
        where = await _moment(workspace, moment, role)
        knowledge = await reads.knew(workspace, where, rules, secret)
    hints = [_UNMASKED] if role is not None and rules is None and not knowledge.made.rules else []
    output.show(knowledge, [*_render_knowledge(knowledge), *hints])


_UNMASKED = Hint(
    "the role had no rules then, so no mask is applied; to use its rules of today: --rules now"
)


async def _moment(workspace: Workspace, text: str, role: str | None) -> Moment:
    run, is_point, point = text.partition("@")
    if is_point:
        return await reads.at_point(workspace, await find_run(workspace, run), point, role)
    if text == "last" or text in await workspace.log.runs():
        run = await find_run(workspace, text)
        return await reads.before_newest_decision(workspace, run, role)
    return await reads.before_event(workspace, text, await address_of(text), role)


def _render_knowledge(knowledge: Knowledge) -> Iterator[Part]:
    where, view = knowledge.where, knowledge.made.view
    what = f"{where.event.type} at {where.address}" if where.event is not None else "that point"
    shown = knowledge.made.rules and f"{counted(len(view.events), 'event')} of the run"
    rows: list[tuple[str, object]] = [
        ("run", where.run),
        ("agent", where.agent),
        ("role", where.role),
        ("before", what),
        ("visible to its role", shown or "not limited: the role had no rules then"),
        ("views it was given", f"{len(knowledge.before):,}" if knowledge.before else "none"),
    ]
    yield output.pairs(rows)
    yield ""
    if knowledge.data is not None:
        yield output.Lines(list(agent_lines(where.agent, knowledge.data)))
        yield ""
    yield from _events(view)
    digest = f", digest {view.digest}" if view.digest else ""
    if where.decisions == 0:
        yield Hint(f"run {where.run} has no decision: this is its last agent, at the run's end")
    elif where.decisions is not None and where.decisions > 1:
        yield Hint(
            f"the newest of {counted(where.decisions, 'decision')}, at {where.address}: "
            f"'hansard why {where.run}' lists the others; give the address of one"
        )
    yield Hint(f"as of position {where.position}{digest}")


Kind = Literal["agent", "person", "service"]

LOGIN_STYLES = {Validity.VALID: "green", Validity.EXPIRED: "yellow", Validity.REVOKED: "red"}

LOGINS = output.columns(
    "principal! kind role! on_behalf_of token! standing! carries! expires because~",
    token=lambda login: login.token or "none",
    expires=lambda login: output.time(login.expires) or "never" * bool(login.token),
    styles={"standing": LOGIN_STYLES},
)


@principals.callback()
def list_principals(context: typer.Context, json: Json = False) -> None:
    """List principals with their tokens, validity, and the label carried between runs."""
    if context.invoked_subcommand is None:
        do(_list_principals, json=json)


async def _list_principals() -> None:
    async with reading() as workspace:
        listing = await list_logins(workspace)
    output.show(listing, [output.listing(LOGINS, listing)])


@principals.command()
async def register(
    name: Annotated[str, argument("NAME", "Name of the principal.")],
    kind: Annotated[Kind, option("Kind of principal; it cannot be changed.")] = "person",
    about: Annotated[str, option("For the record.", "TEXT")] = "",
    by: By = OS_USER,
) -> None:
    """Register a principal that does not log in, so that others can act on behalf of it.

    A principal that gets credentials is registered with the first of them.
    """
    async with reading() as workspace:
        is_new = await logins.register(workspace, name, PrincipalKind(kind), about=about, by=by)
    fields = {"principal": name, "kind": kind, "registered": is_new}
    text = f"principal {name} ({kind}) is registered{'' if is_new else ' already'}"
    output.show(fields, text)


@principals.command()
async def revoke(
    which: Annotated[str, argument("TOKEN|NAME", "A token's id, or a principal.")],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Revoke tokens immediately and for good; logins that use one are disconnected.

    Given a principal, revoke all of its tokens and all tokens that act on behalf of it.
    """
    async with reading() as workspace:
        ended = await logins.revoke_all(workspace, which, reason=reason, by=by)
        report = await sync_broker(settings(), workspace)
    for each in ended:
        done = {"principal": each.principal, "token": each.token, "revoked": each.is_new}
        text = f"token {each.token} of {each.principal} is revoked"
        output.show(done, text if each.is_new else f"{text} already")
    outside = "the broker is not ours: take these logins out of its configuration, too"
    output.show([], [] if report else [output.Hint(outside)])


APPROVAL_STYLES = {
    ApprovalStatus.PENDING: "bold yellow",
    ApprovalStatus.GRANTED: "green",
    ApprovalStatus.DENIED: "red",
    ApprovalStatus.EXPIRED: "yellow",
}


def _age(time: str) -> str:
    """Return how long ago a time was."""
    age = datetime.now(UTC) - datetime.fromisoformat(time)
    return f"{output.offset(1_000 * max(0, age.total_seconds())).removeprefix('+')} ago"


def _until(request: Question) -> str:
    """Return the time until which an answer counts; how long ago it was for an expired one."""
    is_over = request.standing is ApprovalStatus.EXPIRED
    return _age(request.until) if is_over else output.time(request.until)


def _waits(request: Question) -> str:
    """Return whether an agent waits for a pending approval, or why not; "" if it is not known."""
    if request.at_work:
        return "yes"
    if request.run_status not in (None, RunStatus.OPEN):
        return f"run {request.run_status}"
    return "process ended" if request.at_work is False else ""


APPROVALS = output.columns(
    "approval! standing! run! agent tool! requested! waits!? arguments until! answered! "
    "answered_by=by because",
    requested=lambda each: _age(each.asked_at),
    waits=_waits,
    arguments=lambda each: output.arguments_preview(recorded(each.arguments)),
    until=_until,
    answered=lambda each: output.time(each.answered_at),
    styles={"standing": APPROVAL_STYLES},
)


@approvals.callback()
def show_approvals(
    context: typer.Context,
    every: Annotated[bool, flag("--all", "Also answered and expired approvals.")] = False,
    json: Json = False,
) -> None:
    """List calls that wait for approval, in all runs; grant or deny them."""
    if context.invoked_subcommand is None:
        do(lambda: _list_approvals(every=every), json=json)


async def _list_approvals(*, every: bool) -> None:
    async with reading() as workspace:
        questions = await list_approvals(workspace, every=every)
        await note_waiting(workspace, settings(), questions)
    output.show(questions, _render_approvals(questions))


def _render_approvals(questions: reads.Approvals) -> list[Part]:
    if not questions.questions:
        more = (
            "; 'hansard approvals --all' lists answered and expired ones" if questions.all else ""
        )
        return [f"no call waits for approval{more}"]
    pending = [e for e in questions.questions if e.standing is ApprovalStatus.PENDING]
    over = sum(_waits(each) not in ("", "yes") for each in pending)
    hints = [Hint("answer with 'hansard approvals grant ID' or 'deny ID --reason TEXT'")]
    hints += [
        Hint(
            f"{over:,} of {counted(len(pending), 'pending approval')}: the run or the process has "
            "ended, so nobody is known to wait; an agent waits again once its run is resumed"
        )
    ] * bool(over)
    shown = [part for each in questions.questions for part in _diff(each)]
    return [output.listing(APPROVALS, questions.questions), *shown, *(hints if pending else [])]


def _diff(request: Question) -> Iterator[Part]:
    """Yield the diff of the files that a pending approval would change."""
    if request.standing is not ApprovalStatus.PENDING:
        return
    arguments = recorded(request.arguments)
    diff = arguments.get("diff") if isinstance(arguments, dict) else None
    if isinstance(diff, str):
        yield ""
        yield f"{request.approval} changes {arguments.get('space', 'memory')}:"
        yield diff


derive(roles, Roles, "withdraw", views={"withdraw": "role {name} is withdrawn"})


async def _question(record: AsyncRecord, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answered request and its call."""
    every = await record.approvals.list(answered=True)
    same = [each for each in every if each.approval.id.startswith(arguments["approval"])]
    found = max(same, key=lambda each: each.approval.answered_at or 0)  # a newer one may match, too
    names = ("approval", "agent", "step", "tool")
    return {"run": found.run} | {name: getattr(found.approval.request, name) for name in names}


ANSWERED = "approval {approval} of {tool} ({agent}#{step} of run {run})"

derive(
    approvals,
    Approvals,
    "grant deny",
    views={"grant": f"{ANSWERED} is granted by {{by}}", "deny": f"{ANSWERED} is denied by {{by}}"},
    facts=_question,
)
