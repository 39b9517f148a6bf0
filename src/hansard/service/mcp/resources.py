"""Resources and prompts of the record, and completion of their arguments.

run://RUN/trace             its steps, as `hansard run trace --json` prints them
run://RUN/state[?at=POINT]  its whole state, now or at a point run://RUN/view[?role=ROLE]  the view
of this client's role, or of another that it may see board://RUN/KEY             an entry of its
shared state task://RUN/ID               a task of its team decision://ID               the
explanation of a decision memory://PATH               a file of memory, as this client's agent sees
it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.agents.team.tasks import TaskEntry
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.domain.choices import nearest
from hansard.domain.errors import BadName, BadValue
from hansard.inspect.state import state
from hansard.inspect.trace import trace
from hansard.operations.protocol import shapes
from hansard.operations.protocol.errors import NotOffered
from hansard.service.mcp.offers import Answer, in_own_run, lines
from hansard.service.mcp.sessions import Sessions

# ------------------------------------------------------------ prompts
#
# The server's own prompts name the tools that answer, and hold no text of the record. Prompts on
# record are listed by name, as their newest version; `rag@production` and `rag@3` are accepted.


class Argument(msgspec.Struct, frozen=True):
    """An argument of a prompt; all are required."""

    name: str
    does: str


class Prompt(msgspec.Struct, frozen=True):
    """A prompt: its text has its arguments in braces."""

    name: str
    does: str
    arguments: tuple[Argument, ...]
    text: str


RUN = Argument("run_id", "The run.")

REMEMBER = "remember"

PROMPTS = {
    each.name: each
    for each in (
        Prompt(
            "take_up",
            "Resume a run that stopped or died, without doing anything twice.",
            (RUN,),
            "Resume run {run_id} with resume_run. Read run://{run_id}/trace and the "
            "messages (context), then team_tasks and board_keys: say in three sentences "
            "what was done, what is under way and what is in doubt. A step in doubt may "
            "have happened: ask a person before you do it again. Then claim the next task "
            "(team_claim) and continue; record your progress with checkpoint.",
        ),
        Prompt(
            "hand_over",
            "Leave a run in a state from which another agent can continue.",
            (RUN, Argument("to", "The agent or role that continues.")),
            "Hand run {run_id} over to {to}. Complete or give back the tasks that you hold "
            "(team_tasks), put what you found on the board (board_put), say what you "
            "decided and why (decide), and save a checkpoint. Then call hand_off with a "
            "summary: what is done, what is left, what you are not sure of, each with its "
            "step or key.",
        ),
        Prompt(
            "explain",
            "Explain a decision from what is on record, and from nothing else.",
            (Argument("decision", "The id or address of a decision, or a run."),),
            "Call why on {decision}. Explain in plain words the question, the selected "
            "alternative, its inputs, the other alternatives and how close they were, and "
            "what the agent did not know. Give the address of each event that you rely on. "
            "If the record does not say something, say so.",
        ),
        Prompt(
            "compare",
            "Say what an experiment has shown, and what it has not.",
            (Argument("experiment", "The experiment."),),
            "Call compare on experiment {experiment}. Give its verdict unchanged, with the "
            "difference, its interval and the number of tasks; say whether the plan was "
            "registered before the data, and what would change the verdict (missing trials, "
            "looks, metrics without a direction). Do not call anything better that the "
            "verdict does not.",
        ),
        Prompt(
            REMEMBER,
            "Have this agent remember something from now on (/remember).",
            (RUN, Argument("what", "The rule to remember.")),
            "/remember {what}\n\nRecord these words of mine unchanged, with message in run "
            "{run_id} (role user, content beginning with /remember). Then check with memory_search "
            "and memory_entry whether memory already contains it, or the contrary. If not, add it "
            "as one general rule with memory_remember; instructions for a certain task belong "
            "in a file under skills/ (memory_create). If it contradicts a present rule, change "
            "that one (memory_edit) instead of adding another. A person may have to approve the "
            "change: wait for that, and report the result.",
        ),
    )
}


class Filled(msgspec.Struct, frozen=True):
    """A prompt with its arguments filled in.

    Attributes:
        does: Its purpose.
        text: The text for the model.
        answer: The answer on record; None for the server's own prompts.
        reference: The version of a prompt on record.
    """

    does: str
    text: str
    answer: Answer | None = None
    reference: str = ""


async def list_prompts(sessions: Sessions) -> list[Prompt]:
    """List the server's own prompts, and those on record that the client's role may see."""

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        found = await sessions.record.prompts()
        for each in found:
            await sessions.shown(each.label)
        content = [[each.name, each.version, each.because, each.variables] for each in found]
        return Answer(content, replayable=False)

    try:
        content = (await in_own_run(sessions, "prompts/list", {}, reads)).result
    except (NotOffered, RoleRefused):  # its role may not see prompts, or not even request them
        content = []
    return [
        *PROMPTS.values(),
        *(
            _on_record(name, version, because, variables)
            for name, version, because, variables in content
        ),
    ]


def _on_record(name: str, version: int, reason: str, variables: tuple[str, ...]) -> Prompt:
    does = f"Version {version} of prompt {name}" + (f": {reason}" if reason else ", on record.")
    arguments = tuple(Argument(each, f"The value of {{{each}}}.") for each in variables)
    return Prompt(f"{name}@{version}" if name in PROMPTS else name, does, arguments, "")


async def get_prompt(sessions: Sessions, name: str, given: Mapping[str, str]) -> Filled:
    """Return a prompt's text with its arguments; the request for one on record is recorded.

    Raises BadValue, Refused.
    """
    if name in PROMPTS:
        return _filled(PROMPTS[name], given)

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        found = await sessions.record.prompt(name)
        await sessions.shown(found.label)
        content = {"text": str(found.format(**given)), "reference": found.reference}
        return Answer(content, replayable=False)

    try:
        answer = await in_own_run(
            sessions, "prompts/get", {"name": name, "arguments": {**given}}, reads
        )
    except (NotFound, BadName, NotOffered, RoleRefused):  # a hidden prompt does not exist for it
        remedy = f"{nearest(name, PROMPTS)}there are {', '.join(PROMPTS)}, and those on record"
        raise BadValue("prompt", f"there is no {name!r:.80}", remedy) from None
    content: dict[str, Any] = answer.result
    does = f"Prompt {content['reference']} of the record."
    return Filled(does, content["text"], answer, content["reference"])


def _filled(found: Prompt, given: Mapping[str, str]) -> Filled:
    names = [each.name for each in found.arguments]
    for each in [*names, *given]:
        if each not in names or not given.get(each):
            fact = f"{each!r:.80} is " + ("missing" if each in names else "not an argument")
            raise BadValue(f"prompt {found.name}", fact, f"give {', '.join(names)}")
    return Filled(found.does, found.text.format(**given))


LISTED_MAX = 50
"""Newest runs whose traces are listed; others are read by address."""


FILES_MAX = 200
"""Files of memory that are listed, by path; others are read by address."""


class Template(msgspec.Struct, frozen=True):
    """An address with names in braces, its description, and whether changes are notified."""

    uri: str
    name: str
    does: str
    changes: bool = True


TEMPLATES = (
    Template("run://{run}/trace", "trace", "The steps of a run, with arguments and results."),
    Template("run://{run}/state{?at}", "state", "The whole state of a run, now or at a point."),
    Template(
        "run://{run}/view{?role}",
        "view",
        "The view of its role, or of another that it may see.",
    ),
    Template("board://{run}/{+key}", "board", "An entry of a run's shared state."),
    Template("task://{run}/{task}", "task", "A task of a run's team.", changes=False),
    Template("memory://{+path}", "memory", "A file of this agent's memory."),
    Template(
        "decision://{id}",
        "decision",
        "The explanation of a decision: its inputs, reasons and author.",
        changes=False,
    ),
)


FIXED = {each.name for each in TEMPLATES if not each.changes}
"""Kinds without change notifications."""


class Address(msgspec.Struct, frozen=True):
    """The parts of a resource's URI.

    `kind` is the name of one of `TEMPLATES`, `of` a run or decision, `key` a key (of a task its id,
    of memory its path), `at` a point, `role` a role that is not the client's own.
    """

    kind: str
    of: str
    key: str | None = None
    at: str | None = None
    role: str | None = None

    @property
    def changes(self) -> bool:
        """True if changes are notified.

        Not so for the state at a point, an answer, or the view of another role.
        """
        return self.kind not in FIXED and self.at is None and self.role is None

    @classmethod
    def read(cls, uri: str) -> Address:
        """Parse a URI. Raises BadValue for one that is not a resource's."""
        parts = urlsplit(uri)
        where, path = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
        if where and parts.scheme == "memory":
            return cls("memory", "", f"{where}/{path}" if path else where)
        if where and parts.scheme in ("board", "task") and path:
            return cls(parts.scheme, where, path)
        if where and parts.scheme == "run" and path in ("trace", "state", "view"):
            request = {name: values[0] for name, values in parse_qs(parts.query).items()}
            at = request.get("at") if path == "state" else None
            return cls(path, where, at=at, role=request.get("role") if path == "view" else None)
        if where and parts.scheme == "decision" and not path:
            return cls("decision", where)
        known = ", ".join(each.uri for each in TEMPLATES)
        raise BadValue(f"{uri!r:.200}", "is no address of a resource", f"there are {known}")


async def read(
    sessions: Sessions, uri: str, address: Address, request: str = "resources/read"
) -> Answer:
    """Read an address; return the content and the session in whose run the request is recorded.

    Raises NotOffered, and as the session's operations.
    """
    if address.kind in ("board", "task", "view") and address.role is None:
        work = await sessions.of(address.of)
        async with sessions.at_work(work):
            if address.kind == "task":
                found = _task(address, await work.session.team.tasks())
            elif address.key is not None:
                found = await work.session.board.entry(address.key)
            else:
                found = await work.session.view()
        return Answer(msgspec.json.decode(await shapes.encode_result(found)), work)
    if address.kind == "memory":
        work = await sessions.own()
        async with sessions.at_work(work):
            return Answer((await work.session.memory.entry(address.key)).text, work)
    reads = {"trace": _steps, "state": _state, "decision": _reason, "view": _seen_by}[address.kind]
    return await in_own_run(sessions, request, {"uri": uri}, lambda: reads(sessions, address))


def _task(address: Address, tasks: Sequence[TaskEntry]) -> TaskEntry:
    for each in tasks:
        if each.id == address.key:
            return each
    raise NotFound(f"task {address.key!r:.80}", "give the id of one that team_tasks lists")


async def _steps(sessions: Sessions, address: Address) -> Answer:
    workspace, run = _workspace(sessions), address.of
    position = await workspace.states.log.end(await workspace.points.up_to(run, None))
    history = await workspace.states.history(run, AtPosition(position))
    return Answer(lines(trace(run, history)), replayable=False, position=position)


async def _state(sessions: Sessions, address: Address) -> Answer:
    found = await state(_workspace(sessions), address.of, address.at, None)
    return Answer(lines(found), replayable=False, position=found.position)


async def _reason(sessions: Sessions, address: Address) -> Answer:
    found = await sessions.record.why(address.of)
    return Answer(lines(found), replayable=False, position=found.position)


async def _seen_by(sessions: Sessions, address: Address) -> Answer:
    await sessions.demand(permits.views(address.role or ""))
    found = await sessions.record.view(address.of, role=address.role)
    content = msgspec.json.decode(await shapes.encode_result(found))
    return Answer(content, replayable=False)


def _workspace(sessions: Sessions) -> Any:
    """Return the record's workspace. Raises NotOffered for a restricted agent."""
    if sessions.workspace is None:
        raise NotOffered("the whole of a run", "read run://RUN/view")
    return sessions.workspace


def mime_of(uri: str) -> str:
    """Return the MIME type of an address: JSON, or that of a file of memory."""
    if urlsplit(uri).scheme != "memory":
        return "application/json"
    return {"md": "text/markdown", "json": "application/json"}.get(
        uri.rpartition(".")[2], "text/plain"
    )


async def list_files(sessions: Sessions) -> list[Template]:
    """List the first files of the agent's memory, by path. Raises RoleRefused."""
    work = await sessions.own()
    async with sessions.at_work(work):
        found = await work.session.memory.ls()
    return [
        Template(f"memory://{quote(path)}", path, f"The file of memory {path}.")
        for path in found[:FILES_MAX]
    ]


async def list_traces(sessions: Sessions) -> list[Template]:
    """List the newest runs' traces.

    Raises NotOffered for a restricted agent, and RoleRefused if its role may not even request it.
    """

    async def reads() -> Answer:
        found = (await sessions.record.runs())[:LISTED_MAX]
        content = [[run, life.workflow, life.status.value] for run, life in found]
        return Answer(content, replayable=False)

    return [
        Template(
            f"run://{quote(run, safe='')}/trace",
            f"{workflow} {run}",
            f"The steps of run {run} ({status}).",
        )
        for run, workflow, status in (
            await in_own_run(sessions, "resources/list", {}, reads)
        ).result
    ]


# ------------------------------------------------------------ completion
#
# Values come from the client's own sessions, and from SQL as its role is answered.

VALUES_MAX = 100
"""Most values of an answer, as the protocol allows."""

RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY started_at DESC, run"
DECISIONS = """
SELECT decision FROM decisions WHERE starts_with(decision, $1) ORDER BY position DESC, decision
"""
EXPERIMENTS = "SELECT experiment FROM experiments WHERE starts_with(experiment, $1) ORDER BY ALL"
MEMBERS = """
SELECT DISTINCT name FROM (
    SELECT unnest([agent, role]) AS name FROM agents WHERE $2 IN ('', run)
) WHERE starts_with(name, $1) ORDER BY ALL
"""
POINTS = """
SELECT agent || '@' || version AS point FROM agents
WHERE run = $2 AND starts_with(point, $1) ORDER BY ALL
"""
KEYS = "SELECT DISTINCT key FROM board WHERE run = $2 AND starts_with(key, $1) ORDER BY ALL"
TASKS = "SELECT task FROM tasks WHERE run = $2 AND starts_with(task, $1) ORDER BY ALL"
"""Values that begin with $1, in the run $2."""


class Offered(msgspec.Struct, frozen=True):
    """Possible values, at most `VALUES_MAX`, and whether there are more."""

    values: list[str]
    has_more: bool


Source = Callable[[Sessions, str, str], Awaitable[list[str]]]
"""Returns the values with a prefix, in a run ("" for none): at most `VALUES_MAX` + 1."""


async def complete(
    sessions: Sessions, ref: str, argument: str, begun: str, known: Mapping[str, str]
) -> Offered:
    """Return the possible values of an argument with a prefix.

    `ref` is a prompt's name, or an address as listed; `known` are the other arguments. Raises
    BadValue for an unknown argument.
    """
    source = _source(ref, argument)
    run = known.get("run") or known.get("run_id") or ""
    request = {"ref": ref, "argument": argument, "value": begun, "known": dict(known)}

    async def reads() -> Answer:
        return Answer(await source(sessions, begun, run), replayable=False)

    try:
        if source is _files:  # a step itself
            found = await source(sessions, begun, run)
        else:
            found = (await in_own_run(sessions, "completion/complete", request, reads)).result
    except (NotOffered, RoleRefused):  # its role may not even request it
        found = []
    return Offered(found[:VALUES_MAX], len(found) > VALUES_MAX)


def _source(ref: str, argument: str) -> Source:
    template = next((each for each in TEMPLATES if each.uri == ref), None)
    if template is not None:
        sources = OF_ADDRESSES
        named = [name for name in sources if any(f"{{{at}{name}}}" in ref for at in ("", "+", "?"))]
    elif ref in PROMPTS:
        sources = OF_PROMPTS
        named = [each.name for each in PROMPTS[ref].arguments]
    else:
        return _nothing  # a prompt on record: its variables may be anything
    if argument not in named:
        remedy = f"{nearest(argument, named)}give one of {', '.join(named)}"
        raise BadValue(ref, f"{argument!r:.80} is not one of its arguments", remedy)
    return sources.get(argument, _nothing)


async def _nothing(sessions: Sessions, begun: str, run: str) -> list[str]:
    del sessions, begun, run
    return []


def _from(statement: str) -> Source:
    async def source(sessions: Sessions, begun: str, run: str) -> list[str]:
        given = [begun, run] if "$2" in statement else [begun]
        try:
            found = await sessions.record.sql(f"{statement} LIMIT {VALUES_MAX + 1}", *given)
        except (NotOffered, RoleRefused):
            return []
        return [str(value) for (value,) in found.rows]

    return source


async def _runs(sessions: Sessions, begun: str, run: str) -> list[str]:
    mine = [each for each in sessions.runs if each.startswith(begun)]
    return list(dict.fromkeys([*mine, *await _from(RUNS)(sessions, begun, run)]))


async def _keys(sessions: Sessions, begun: str, run: str) -> list[str]:
    return await _in_run(sessions, run, begun, KEYS, lambda session: session.board.keys())


async def _tasks(sessions: Sessions, begun: str, run: str) -> list[str]:
    async def ids(session: Any) -> list[str]:
        return [each.id for each in await session.team.tasks()]

    return await _in_run(sessions, run, begun, TASKS, ids)


async def _in_run(
    sessions: Sessions,
    run: str,
    begun: str,
    statement: str,
    reads: Callable[[Any], Awaitable[list[str]]],
) -> list[str]:
    """Return values as the client's session in that run sees them; without a session by SQL.

    Completion joins no run.
    """
    work = sessions.under_way(run, in_run=True)
    if work is None:
        return await _from(statement)(sessions, begun, run)
    async with sessions.at_work(work):
        found = await reads(work.session)
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


async def _files(sessions: Sessions, begun: str, run: str) -> list[str]:
    del run
    work = await sessions.own()
    async with sessions.at_work(work):
        found = await work.session.memory.ls()
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


async def _points(sessions: Sessions, begun: str, run: str) -> list[str]:
    if sessions.workspace is None:  # a restricted agent does not see versions
        return []
    return await _from(POINTS)(sessions, begun, run)


async def _roles(sessions: Sessions, begun: str, run: str) -> list[str]:
    del run
    found: list[str] = await sessions.record.view_roles()
    if sessions.workspace is not None:
        mine = (await sessions.own()).session.role
        permit = await permits.read(sessions.workspace, mine)
        found = [each for each in found if permit.ask(permits.views(each)).allowed]
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


OF_ADDRESSES: dict[str, Source] = {
    "run": _runs,
    "key": _keys,
    "task": _tasks,
    "at": _points,
    "role": _roles,
    "path": _files,
    "id": _from(DECISIONS),
}
"""Sources of values by the names in an address."""

OF_PROMPTS: dict[str, Source] = {
    "run_id": _runs,
    "to": _from(MEMBERS),
    "experiment": _from(EXPERIMENTS),
    "decision": _from(DECISIONS),
}
"""Sources of values by the arguments of the server's own prompts."""
