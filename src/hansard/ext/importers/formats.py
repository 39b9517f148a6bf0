"""Formats of other systems, read as chats: ATIF, Claude Code, tau-bench, tau2-bench, Inspect."""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import Any, Literal

import msgspec

from hansard.domain import ids
from hansard.domain.errors import BadValue
from hansard.ext.importers.chat import (
    AGENT,
    SOURCE_RUN,
    TOOL,
    ChatRun,
    Ending,
    ImportDefaults,
    Message,
    Whole,
    converted,
    labels_of,
    metrics,
    text_of,
)

# Trajectories of ATIF, the Agent Trajectory Interchange Format of Harbor, read as chats.
#
# The format is that of Harbor's RFC 0001 up to version 1.8. A step is a message; the results that
# it observes are messages of tools. An embedded trajectory of a sub-agent belongs to an agent of
# the same run, and its messages are inserted before the result that refers to it.

ATIF = "atif"

SUBAGENT = "subagent"
"""Role of an agent that another agent started."""

_VERSION = re.compile(r"ATIF-v1\.\d+")


class _Call(msgspec.Struct, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: Any
    extra: dict[str, Any] | None = None


class _Reference(msgspec.Struct, frozen=True):
    trajectory_id: str | None = None
    session_id: str | None = None


class _Result(msgspec.Struct, frozen=True):
    source_call_id: str | None = None
    content: Any = None
    subagent_trajectory_ref: list[_Reference] | None = None
    extra: dict[str, Any] | None = None


class _Observation(msgspec.Struct, frozen=True):
    results: list[_Result]


class _Step(msgspec.Struct, frozen=True):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: Any
    timestamp: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: dict[str, Any] | None = None


class _Agent(msgspec.Struct, frozen=True):
    name: str
    version: str | None = None
    model_name: str | None = None


class _Trajectory(msgspec.Struct, frozen=True):
    schema_version: str
    agent: _Agent
    steps: list[_Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[Any] | None = None


_ERROR_MARKS = ("is_error", "tool_result_is_error")
"""Marks of a failed call in results from Harbor's converters; the format itself defines none."""

_MAPPED = {"source", "message", "timestamp", "tool_calls", "observation", "metrics"}
"""Keys of a step that are not kept with its message under their own names."""


def from_atif(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a decoded trajectory. Raises ValidationError, CallerError."""
    reading = _Reading()
    whole = reading.trajectory(raw, "")
    final = whole.final_metrics
    name = whole.trajectory_id or whole.session_id
    record: dict[str, Any] = {
        "workflow": ATIF,
        "agent": whole.agent.name,
        "role": AGENT,
        "roles": {whole.agent.name: AGENT, **reading.roles},
        **({"run": name} if name else {}),
        **({"model": whole.agent.model_name} if whole.agent.model_name else {}),
        "labels": {
            "atif": whole.schema_version,
            **({"agent_version": whole.agent.version} if whole.agent.version else {}),
            **({"session": whole.session_id} if whole.session_id else {}),
            **({"notes": whole.notes} if whole.notes else {}),
        },
        "messages": reading.messages,
    }
    ending = None
    if final is not None:
        numbers = {key: value for key, value in final.items() if type(value) in (int, float)}
        at = next((step.timestamp for step in reversed(whole.steps) if step.timestamp), None)
        ending = Ending(metrics=metrics(numbers, "final_metrics"), details=final, at=at)
    return converted(ATIF, record, defaults, ending=ending, left_out=dict(reading.left_out))


class _Reading:
    """The messages of a trajectory, and of those embedded in it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.roles: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()

    def trajectory(self, raw: Any, name: str) -> _Trajectory:
        """Read a trajectory; `name` is its agent's if it is embedded."""
        whole = msgspec.convert(raw, _Trajectory)
        if not _VERSION.fullmatch(whole.schema_version):
            fact = f"{whole.schema_version!r:.80} is not known"
            raise BadValue("schema_version", fact, "write the trajectory as ATIF-v1")
        embedded = {}
        for number, inner in enumerate(whole.subagent_trajectories or ()):
            key = inner.get("trajectory_id") if isinstance(inner, dict) else None
            if not isinstance(key, str) or key in embedded:
                where = f"subagent_trajectories[{number}].trajectory_id"
                fact = f"{key!r:.80} is missing or there twice"
                raise BadValue(where, fact, "give each trajectory an id of its own")
            embedded[key] = inner
        self.left_out["list of tool definitions"] += bool(raw["agent"].get("tool_definitions"))
        self.left_out["continuation in another file"] += whole.continued_trajectory_ref is not None
        for step, plain in zip(whole.steps, raw["steps"], strict=True):
            self._step(step, plain, name, embedded)
        for key in list(embedded):
            self._embedded(key, embedded)
        self.left_out = +self.left_out
        return whole

    def _step(
        self, step: _Step, plain: dict[str, Any], name: str, embedded: dict[str, Any]
    ) -> None:
        common: dict[str, Any] = {"timestamp": step.timestamp} if step.timestamp else {}
        if name:
            common["name"] = name
        kept = {key: value for key, value in plain.items() if key not in _MAPPED}
        entry = {
            "role": "assistant" if step.source == "agent" else step.source,
            "content": step.message,
            **common,
            **{key: value for key, value in kept.items() if value is not None},
        }
        if step.tool_calls:
            entry["tool_calls"] = [
                {"id": call.tool_call_id, "name": call.function_name, "arguments": call.arguments}
                | ({"extra": call.extra} if call.extra else {})
                for call in step.tool_calls
            ]
        if step.metrics:
            entry["usage"] = {key: n for key, n in step.metrics.items() if key != "cost_usd"}
            if type(step.metrics.get("cost_usd")) in (int, float):
                entry["cost"] = step.metrics["cost_usd"]
        self.messages.append(entry)
        for result in step.observation.results if step.observation is not None else ():
            for reference in result.subagent_trajectory_ref or ():
                if reference.trajectory_id not in embedded:
                    self.left_out["trajectory of a sub-agent in another file"] += 1
                else:
                    self._embedded(reference.trajectory_id, embedded)
            answer = {"role": TOOL, "content": result.content, **common}
            if result.source_call_id is not None:
                answer["tool_call_id"] = result.source_call_id
            if result.extra:
                answer["extra"] = result.extra
                if any(result.extra.get(name) is True for name in _ERROR_MARKS):
                    answer["error"] = True
            self.messages.append(answer)

    def _embedded(self, key: str, embedded: dict[str, Any]) -> None:
        """Take an embedded trajectory, at the first result that refers to it."""
        inner = embedded[key]
        if inner is None:
            return
        embedded[key] = None
        self.roles[key] = SUBAGENT
        self.trajectory(inner, key)


# Claude Code transcripts, read as chats: a session is a run, each sub-agent one of its agents.
#
# A transcript is one JSON object a line; those of type `user` and `assistant` hold a message of
# Anthropic's API. The blocks of one response are separate records with the same message id; its
# usage counts once, as in the last of them.

CLAUDE_CODE = "claude-code"


SYNTHETIC = "<synthetic>"
"""Model name of a response that the program wrote itself, such as a request's error."""

_KEPT = ("uuid", "parentUuid", "requestId", "isMeta", "isCompactSummary", "isApiErrorMessage")
"""Fields of a record that are kept with its message."""

_LABELS = {"version": "claude_code_version", "cwd": "cwd", "gitBranch": "git_branch"}


class _Message(msgspec.Struct, frozen=True):
    """A message of Anthropic's API."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


class _Record(msgspec.Struct, frozen=True):
    """The fields of a line that the importer interprets."""

    type: str
    message: Any = None
    uuid: str | None = None
    timestamp: str | None = None
    session: str | None = msgspec.field(default=None, name="sessionId")
    sidechain: bool | None = msgspec.field(default=None, name="isSidechain")
    agent: str | None = msgspec.field(default=None, name="agentId")
    result: Any = msgspec.field(default=None, name="toolUseResult")


class Session:
    """A transcript while it is read."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._answers: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._labels: dict[str, str] = {}
        self._roles: dict[str, str] = {}
        self._left_out: Counter[str] = Counter()
        self._session = ""
        self._model: str | None = None
        self._main = False

    @property
    def is_empty(self) -> bool:
        """True if no line had a message."""
        return not self._messages

    def take(self, raw: Any) -> None:
        """Add a decoded line. Raises ValidationError."""
        record = msgspec.convert(raw, _Record)
        if record.type not in ("user", "assistant"):
            self._left_out[f"record of type {record.type:.80}"] += 1
            return
        if record.uuid is not None and record.uuid in self._seen:
            self._left_out["record there twice"] += 1
            return
        message = msgspec.convert(record.message, _Message)
        self._seen.add(record.uuid or "")
        self._session = self._session or record.session or ""
        for name, label in _LABELS.items():
            if isinstance(raw.get(name), str) and raw[name]:
                self._labels.setdefault(label, raw[name])
        common = {name: raw[name] for name in _KEPT if raw.get(name) not in (None, False)}
        if record.timestamp:
            common["timestamp"] = record.timestamp
        if record.sidechain:
            common["name"] = f"{SUBAGENT}-{record.agent}" if record.agent else SUBAGENT
            self._roles[common["name"]] = SUBAGENT
        else:
            self._main = True
        if record.type == "assistant":
            self._answer(message, common)
        else:
            self._user(record, message, common)

    def _answer(self, message: _Message, common: dict[str, Any]) -> None:
        blocks = _blocks(message.content)
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        texts = [block for block in blocks if block.get("type") != "tool_use"]
        entry = self._answers.get(message.id or "")
        if entry is None:
            entry = {"role": "assistant", "content": [], **common}
            entry |= {"model": message.model} if message.model else {}
            self._messages.append(entry)
            if message.id:
                entry["message_id"] = message.id
                self._answers[message.id] = entry
        if "name" not in common and message.model != SYNTHETIC:
            self._model = self._model or message.model
        entry["content"] += texts
        if calls:
            entry.setdefault("tool_calls", []).extend(
                {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("input", {})}
                for call in calls
            )
        if message.usage is not None:
            entry["usage"] = message.usage
        if message.stop_reason is not None:
            entry["stop_reason"] = message.stop_reason

    def _user(self, record: _Record, message: _Message, common: dict[str, Any]) -> None:
        blocks = _blocks(message.content)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            entry = {"role": TOOL, **common, "tool_call_id": block.get("tool_use_id")}
            entry["content"] = block.get("content")
            if block.get("is_error") is True:
                entry["is_error"] = True
            if record.result is not None and len(results) == 1:
                entry["toolUseResult"] = record.result
            self._messages.append(entry)
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        if isinstance(message.content, str):
            self._messages.append({"role": "user", "content": message.content, **common})
        elif rest:
            self._messages.append({"role": "user", "content": rest, **common})

    def run(self, defaults: ImportDefaults) -> ChatRun:
        """Return the session as a run; a transcript does not state an outcome. Raises
        CallerError.
        """
        agents = list(self._roles)
        name = self._session
        if not self._main and len(agents) == 1:  # a sub-agent's own file has its session's id
            name += f"/{agents[0]}"
        roles = {**({CLAUDE_CODE: "assistant"} if self._main else {}), **self._roles}
        record = {
            "workflow": CLAUDE_CODE,
            "roles": roles,
            **({"agent": CLAUDE_CODE} if self._main else {}),
            **({"run": name} if name else {}),
            **({"model": self._model} if self._model else {}),
            "labels": self._labels,
            "messages": self._messages,
        }
        return converted(CLAUDE_CODE, record, defaults, left_out=dict(self._left_out))


def _blocks(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else text


# Result files of tau-bench and tau2-bench, read as chats.

TAU_BENCH = "tau-bench"
TAU2_BENCH = "tau2-bench"

TAU_ERROR = "Error:"
"""Prefix of a failed tool's result in tau-bench."""

TAU2_METRICS = ("agent_cost", "user_cost", "duration")
"""Measurements of a tau2-bench simulation besides its reward: US dollars and seconds."""


class _Tau(msgspec.Struct, frozen=True):
    """A run of tau-bench."""

    task_id: str | int
    traj: list[Message]
    reward: float | None = None
    info: Any = None
    trial: Whole | None = None


class _Tau2(msgspec.Struct, frozen=True):
    """A simulation of tau2-bench."""

    id: str
    task_id: str | int
    messages: list[Message]
    trial: Whole | None = None
    reward_info: dict[str, Any] | None = None
    termination_reason: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    agent_cost: float | None = None
    user_cost: float | None = None
    duration: float | None = None


class _Party(msgspec.Struct, frozen=True):
    implementation: str | None = None
    llm: str | None = None


class _Environment(msgspec.Struct, frozen=True):
    domain_name: str | None = None


class _Tau2Info(msgspec.Struct, frozen=True):
    """Header of a tau2-bench file, common to all its simulations."""

    git_commit: str | None = None
    agent_info: _Party | None = None
    user_info: _Party | None = None
    environment_info: _Environment | None = None


class Tau2File(msgspec.Struct, frozen=True):
    """A tau2-bench result file without its simulations, or a submission, whose `results` are the
    published figures by domain.
    """

    info: _Tau2Info | None = None
    results: dict[str, Any] | None = None


class Claims(msgspec.Struct, frozen=True):
    """Figures that a submission claims for an arm, by domain and metric; domain "" if it names
    none.
    """

    figures: dict[str, dict[str, float]]


def from_tau(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a run of tau-bench; a run that broke has an error in its `info`. Raises
    ValidationError.
    """
    run = msgspec.convert(raw, _Tau)
    messages = [_by_convention(message) for message in run.traj]
    error = run.info.get("error") if isinstance(run.info, dict) else None
    known = run.reward is not None or run.info is not None
    return ChatRun(
        format=TAU_BENCH,
        content=defaults.beside(raw),
        workflow=TAU_BENCH,
        experiment=defaults.experiment or "",
        arm=defaults.arm or "",
        task=str(run.task_id),
        trial=run.trial,
        labels=labels_of(raw, _Tau.__struct_fields__),
        messages=messages,
        raw_messages=raw["traj"],
        ending=Ending(
            metrics=metrics({"reward": run.reward}),
            details=run.info,
            error=text_of(error) if error is not None else None,
        )
        if known
        else None,
    )


def _by_convention(message: Message) -> Message:
    """Mark a tool's message as failed if its text begins with `TAU_ERROR`."""
    content = message.content
    if message.role != TOOL or not isinstance(content, str) or not content.startswith(TAU_ERROR):
        return message
    return msgspec.structs.replace(message, error=True)


def labels_of_file(info: _Tau2Info | None) -> dict[str, str]:
    """Return a tau2-bench file's header as labels."""
    if info is None:
        return {}
    agent, user = info.agent_info or _Party(), info.user_info or _Party()
    parts = {
        "domain": info.environment_info.domain_name if info.environment_info else None,
        "agent": agent.implementation,
        "agent_llm": agent.llm,
        "user": user.implementation,
        "user_llm": user.llm,
        "git_commit": info.git_commit,
    }
    return {name: text for name, text in parts.items() if text}


def from_tau2(raw: Any, defaults: ImportDefaults, of_file: dict[str, str]) -> ChatRun:
    """Convert a simulation of tau2-bench. Raises ValidationError."""
    run = msgspec.convert(raw, _Tau2)
    reward = run.reward_info.get("reward") if run.reward_info is not None else None
    reason = run.termination_reason
    measured = {name: getattr(run, name) for name in TAU2_METRICS}
    ended = reason is not None or run.reward_info is not None
    return ChatRun(
        format=TAU2_BENCH,
        content=defaults.beside(raw),
        workflow=TAU2_BENCH,
        experiment=defaults.experiment or "",
        arm=defaults.arm or "",
        task=str(run.task_id),
        trial=run.trial,
        labels={
            SOURCE_RUN: run.id,
            **of_file,
            **({"termination_reason": reason} if reason is not None else {}),
            **labels_of(raw, _Tau2.__struct_fields__),
        },
        began_at=run.start_time,
        messages=run.messages,
        raw_messages=raw["messages"],
        ending=Ending(
            metrics=metrics({"reward": reward, **measured}),
            details=run.reward_info,
            error=reason if reason is not None and "error" in reason else None,
            at=run.end_time,
        )
        if ended
        else None,
    )


def claims_of(results: dict[str, Any]) -> Claims:
    """Return a submission's numbers; values that are not numbers are left out. Raises BadValue."""
    figures: dict[str, dict[str, float]] = {}
    of_none = {name: value for name, value in results.items() if not isinstance(value, dict)}
    domains = {name: value for name, value in results.items() if isinstance(value, dict)}
    for domain, values in ({"": of_none} | domains).items():
        numbers = {name: value for name, value in values.items() if type(value) in {int, float}}
        if numbers:
            where = f"results.{domain}" if domain else "results"
            figures[ids.name("domain", domain) if domain else ""] = metrics(numbers, where)
    return Claims(figures)


# Logs of Inspect (inspect_ai), read as chats: each sample of each epoch is a run.
#
# The messages are the sample's final ones; times, tokens and costs come from its model and tool
# events.

INSPECT = "inspect"

VERSION_MAX = 3
"""Newest log version that can be read; Inspect writes 2, and for a while wrote 3."""

VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Values of Inspect's grades: correct, incorrect, partial, no answer."""

_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

_ATTACHMENT = "attachment://"


class _Score(msgspec.Struct, frozen=True):
    value: Any = None


class _Error(msgspec.Struct, frozen=True):
    message: str


class _Limit(msgspec.Struct, frozen=True):
    type: str
    limit: float | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: dict[str, Any]


class _Output(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None


class _Event(msgspec.Struct, frozen=True):
    """The fields of a model or tool event that the importer interprets."""

    timestamp: str | None = None
    completed: str | None = None
    id: Any = None
    output: Any = None


class _Sample(msgspec.Struct, frozen=True):
    """A sample of one epoch."""

    id: str | int
    epoch: Whole = 1
    messages: list[dict[str, Any]] = []
    scores: dict[str, _Score] | None = None
    metadata: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    store: dict[str, Any] = {}
    attachments: dict[str, str] = {}
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: _Error | None = None
    error_retries: list[Any] | None = None
    limit: _Limit | None = None


class _Dataset(msgspec.Struct, frozen=True):
    name: str | None = None


class _Eval(msgspec.Struct, frozen=True):
    """Header of a log, common to all its samples."""

    task: str
    model: str
    eval_id: str | None = None
    run_id: str | None = None
    task_version: str | int | None = None
    dataset: _Dataset | None = None
    solver: str | None = None


class Log(msgspec.Struct, frozen=True):
    """A log without its samples."""

    eval: _Eval
    version: int = 2

    def __post_init__(self) -> None:
        """Reject a version of the format that is not known. Raises ValueError."""
        if self.version > VERSION_MAX:
            fact = f"version {self.version} of the format is not known"
            raise ValueError(f"{fact}: convert the log with 'inspect log convert'")


def from_sample(raw: Any, defaults: ImportDefaults, log: Log) -> ChatRun:
    """Convert a decoded sample. Raises ValidationError, CallerError."""
    sample = msgspec.convert(raw, _Sample)
    calls = _Calls(sample.events, sample.attachments)
    messages = [calls.message(message) for message in sample.messages]
    left_out = calls.left_out()
    left_out["final state of the solver (store)"] += bool(sample.store)
    left_out["attempt before a retry"] += len(sample.error_retries or ())
    numbers = _numbers(sample.scores or {}, left_out)
    source = log.eval
    dataset = source.dataset.name if source.dataset is not None else None
    labels = {
        **labels_of(sample.metadata),
        "eval_id": source.eval_id,
        "eval_run": source.run_id,
        "task_version": str(source.task_version) if source.task_version is not None else None,
        "dataset": dataset,
        "solver": source.solver,
        "limit": sample.limit.type if sample.limit is not None else None,
    }
    record = {
        "workflow": source.task,
        "run": sample.uuid or f"{source.eval_id or source.run_id}/{sample.id}/{sample.epoch}",
        "task": sample.id,
        "trial": sample.epoch,
        "model": source.model,
        "labels": {name: text for name, text in labels.items() if text},
        "messages": messages,
    }
    details = {
        name: raw[name]
        for name in ("target", "scores", "model_usage", "total_time", "working_time", "error")
        if raw.get(name)
    }
    return converted(
        INSPECT,
        record,
        defaults,
        began_at=sample.started_at,
        ending=Ending(
            metrics=metrics(numbers, "scores"),
            details=details,
            error=sample.error.message if sample.error is not None else None,
            at=sample.completed_at,
        ),
        left_out=dict(+left_out),
    )


class _Calls:
    """Model and tool events of a sample, by the messages that they belong to."""

    def __init__(self, events: list[dict[str, Any]], attachments: dict[str, str]) -> None:
        self._attachments = attachments
        self._models: dict[str, deque[tuple[_Event, _Output]]] = {}
        self._tools: dict[str, str | None] = {}
        self._others = 0
        for raw in events:
            kind = raw.get("event")
            if kind not in ("model", "tool"):
                self._others += 1
                continue
            event = msgspec.convert(raw, _Event)
            if kind == "tool":
                self._tools[str(event.id)] = event.completed or event.timestamp
            else:
                output = msgspec.convert(event.output or {}, _Output)
                choice = output.choices[0].message if output.choices else {}
                self._models.setdefault(self._key(choice), deque()).append((event, output))

    def _key(self, message: dict[str, Any]) -> str:
        """Return a message's key: its id, or its content if an older version wrote none."""
        if message.get("id") is not None:
            return str(message["id"])
        plain = _attached([message.get("content"), message.get("tool_calls")], self._attachments)
        return msgspec.json.encode(plain).decode()

    def message(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Convert a message to chat-jsonl."""
        entry = _attached(raw, self._attachments)
        if entry.get("role") == "assistant" and (calls := self._models.get(self._key(raw))):
            event, output = calls.popleft()
            entry["timestamp"] = event.completed or event.timestamp
            usage = output.usage
            if usage:
                entry["usage"] = {name: n for name, n in usage.items() if name != "total_cost"}
                entry["cost"] = usage.get("total_cost")
        if entry.get("tool_calls"):
            entry["tool_calls"] = [_call(call) for call in entry["tool_calls"]]
        if entry.get("role") == TOOL:
            entry["timestamp"] = self._tools.get(str(entry.get("tool_call_id")))
            error = entry.pop("error", None)
            if error is not None:
                entry |= {"error": True, "tool_error": error}
                text = error.get("message") if isinstance(error, dict) else error
                entry["content"] = entry.get("content") or text
        entry["message_id"] = entry.pop("id", None)
        return {name: value for name, value in entry.items() if value is not None}

    def left_out(self) -> Counter[str]:
        """Count the events that belong to no message."""
        return Counter(
            {
                "call of a model without its answer among the messages": sum(
                    map(len, self._models.values())
                ),
                "event besides calls of models and tools": self._others,
            }
        )


def _call(call: Any) -> Any:
    """Convert a tool call; its `function` is the tool's name."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return call
    return {"name": call["function"], **{key: v for key, v in call.items() if key != "function"}}


def _attached(value: Any, attachments: dict[str, str]) -> Any:
    """Replace references to attachments in a value by their texts."""
    if isinstance(value, dict):
        return {name: _attached(each, attachments) for name, each in value.items()}
    if isinstance(value, list):
        return [_attached(each, attachments) for each in value]
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    return value


def _numbers(scores: dict[str, _Score], left_out: Counter[str]) -> dict[str, float]:
    """Return scores as numbers, valued as Inspect does; an object or list yields one for each
    part.
    """
    numbers: dict[str, float] = {}
    for name, score in scores.items():
        value = score.value
        parts = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {}
        if isinstance(value, list):
            parts = {f"{name}.{number}": v for number, v in enumerate(value)}
        for part, each in (parts or {name: value}).items():
            number = _number(each)
            if number is None:
                left_out["score without a number, kept in the details"] += 1
            else:
                numbers[part] = number
    return numbers


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        if value in VALUES:
            return VALUES[value]
        try:
            return _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) else None
