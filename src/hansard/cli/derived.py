"""Commands made from the declarations of operations: those of slices, and plain ones of our own."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from hansard.bus import slices
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import SLICES, By, Commands, Reason, Run, argument, help_of, option, within
from hansard.cli.opening import settings
from hansard.cli.output import Column, Part
from hansard.client.opening import check_data_dir, open_with_tables
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain.choices import NOTHING, moment
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.ids import RunStream
from hansard.inspect.answer import Listed, find_run
from hansard.operations.declare import Noun, Operation, documented, of_record
from hansard.operations.experiments import Experiments
from hansard.operations.record import RecordOperations
from hansard.state.replay import fold_life

PLAIN = (str, int, float, bool)
TEXTS = Sequence[str]
"""Of these types a command takes words: one, and several."""

PARTS = (list, msgspec.Struct)
"""Values of an answer that are shown below its other fields."""

LINE = 1000
"""Most characters of a nested value in a line of its own."""

COMMON = {"by": By, "reason": Reason, "run": Run}
"""Parameters with the same text in all commands."""

View = str | Callable[[Any], "str | Iterable[Part]"]
"""Renders an answer for people; a text has the arguments, facts and `result` in braces."""

Facts = Callable[[AsyncRecord, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Looks up in the record what the arguments and the `result` of a completed command name."""


def derive(
    group: Commands,
    noun: type[Noun[Any]],
    names: str,
    *,
    views: Mapping[str, View] = NOTHING,
    facts: Facts | None = None,
    begins: bool = False,
) -> None:
    """Add a command to a group for each of some operations of a noun of the record.

    `names` are words; `hansard.cli.declared` reads them from the source. A view `alias take_away`
    is that of `alias` with this argument. With `begins` the workspace need not exist.
    """
    for name in names.split():
        each: Operation = getattr(noun, name).operation
        function = _function(each, views, facts, begins=begins or each.begins)
        group.command(command_name(name), help=help_of(documented(each)[0]))(function)


def command_name(attribute: str) -> str:
    """Return the name of an operation's command."""
    return attribute.replace("_", "-")


def group(name: str) -> Any:
    """Return the group of a slice's commands; None if it is not installed."""
    extension = next((each for each in slices.installed() if each.name == name), None)
    if extension is None:
        return None
    about = SLICES.get(name, f"Operations of the installed slice {name!r}.")
    commands = Commands(name=name, help=about)
    for noun in extension.operations():
        for operation in of_record(noun, also_trusted=True).values():
            text = help_of(documented(operation)[0])
            register = commands.command(command_name(operation.attribute), help=text)
            register(_function(operation, begins=operation.begins, of_slice=name))
    commands.callback()(lambda: None)  # a group, also of one command
    return typer.main.get_group(commands)


@contextlib.asynccontextmanager
async def recording(*, begins: bool) -> AsyncGenerator[AsyncRecord]:
    """Open the workspace's record; unless the command may begin it, it must exist."""
    config = settings()
    if not begins:
        check_data_dir(config)
    workspace, tables = await open_with_tables(config, only_read=not begins, tell=output.hint)
    async with AsyncRecord(workspace, Defaults.of(config, {}), tables) as record:
        yield record


def _function(
    operation: Operation,
    views: Mapping[str, View] = NOTHING,
    facts: Facts | None = None,
    *,
    begins: bool,
    of_slice: str = "",
) -> Any:
    """Return the function of a command, with the parameters of an operation. An operation of the
    core gets its run by id.
    """
    noun = of_slice or operation.method.rpartition(".")[0] or "run"
    title = f"{noun} {command_name(operation.attribute)}"
    _, texts = documented(operation)
    hints = get_type_hints(SimpleNamespace(__annotations__={**operation.hints}))  # not Annotated
    own_parameters = [each for each in operation.here.parameters.values() if each.name != "self"]
    kinds = {each.name: _plain(hints[each.name]) for each in own_parameters}

    async def run(**options: Any) -> None:
        arguments = {name: value for name, value in options.items() if value is not None}
        for name, value in arguments.items():
            if isinstance(value, str) and kinds[name] in (None, datetime):
                where = spelled[name.rstrip("_")]
                arguments[name] = _decoded(where, value, kinds[name])
        view = _view(views, operation.attribute, arguments)
        async with recording(begins=begins) as record:
            if not of_slice and isinstance(which := arguments.get("run"), str) and which:
                arguments["run"] = await find_run(record.workspace, which)
            try:
                answer = await operation.method_of(record)(**arguments)
            except BadValue as error:
                where = spelled.get(error.where, error.where)
                raise BadValue(where, error.fact, error.remedy) from error
            named = {**arguments}
            if facts is not None and isinstance(view, str):
                try:
                    named |= await facts(record, {**arguments, "result": answer})
                except HansardError as error:
                    view = _shown
                    output.hint(f"{title}: done and on record; its summary is missing: {error}")
            line = {k: v for k, v in named.items() if v not in ("", []) and v is not False}
            if answer == []:
                filters = within(**{n: str(_text(line[n])) for n in line if n != "by"})
                what = f"{title}: nothing{filters}"
                output.hint(f"{what}, as of position {await record.workspace.log.head()}")
        line["result"] = answer
        if isinstance(view, str):
            already = " already" * (answer is False or "unchanged" in line)
            shown: Any = view.format(**named, result=answer) + already
            line["summary"] = shown
        else:
            shown = view(answer)
        output.show(answer if isinstance(answer, msgspec.Struct | list) else line, shown)

    spelled = {each.name.rstrip("_"): _spelled(each) for each in own_parameters}
    parameters = [_parameter(each, kinds[each.name], texts, of_slice) for each in own_parameters]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _spelled(parameter: inspect.Parameter) -> str:
    """Return the name of a parameter as its command has it."""
    name = parameter.name.rstrip("_")
    return f"--{name.replace('_', '-')}" if _is_option(parameter) else name.upper()


def _is_option(parameter: inspect.Parameter) -> bool:
    absent = (parameter.empty, None, "", ())
    return parameter.kind is parameter.KEYWORD_ONLY or parameter.default not in absent


def _parameter(
    each: inspect.Parameter, kind: Any, texts: Mapping[str, str], of_slice: str
) -> inspect.Parameter:
    """Return the parameter of a command's function for one of an operation."""
    default, name, is_option = each.default, each.name.rstrip("_"), _is_option(each)
    text = texts.get(each.name, f"Its {name}.") + ("" if kind else " As JSON.")
    many = "..." * (kind == list[str])
    text += " Repeatable." * bool(is_option and many)
    shown = name.upper() if default is each.empty else f"[{name.upper()}]"
    named = [_spelled(each)] * (name != each.name or kind is bool)
    mark = option(text, None, *named) if is_option else argument(shown + many, text)
    for common in get_args(COMMON.get(name) if not of_slice or name != "run" else None)[1:]:
        is_same = isinstance(common, type(mark)) and (name != "by" or default == OS_USER)
        mark = common if is_same else mark
    if kind == list[str] and default is not each.empty:
        default = list(default)
    if kind in (None, datetime):
        kind = str if default is each.empty else str | None
    if default is not each.empty and NoneType in get_args(kind):
        default = None
    return each.replace(annotation=Annotated[kind, mark], default=default)


def _view(views: Mapping[str, View], attribute: str, arguments: Mapping[str, Any]) -> View:
    """Return the view of a command with its arguments."""
    keys = (f"{attribute} {name}" for name, value in arguments.items() if value)
    return next((views[each] for each in (*keys, attribute) if each in views), _shown)


def _plain(hint: Any) -> Any:
    """Return the type of a parameter as a command takes it; None for one that it takes as JSON."""
    parts = {*get_args(hint)} or {hint}
    if hint == TEXTS:
        return list[str]
    if Path in parts:
        return str | None if type(None) in parts else str
    if hint is datetime:
        return datetime
    return hint if parts <= {*PLAIN, type(None)} else None


def _decoded(where: str, text: str, kind: Any) -> Any:
    if kind is datetime:
        return moment(where, text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadValue(
            where, f"{text!r:.80} is not JSON: {error}", "give one JSON value"
        ) from error


def _shown(answer: Any) -> Iterable[Part]:
    """Return an answer for people: a table of objects, the fields of one, or the value."""
    match answer:
        case list():
            yield from _listed(answer) if answer else []
        case msgspec.Struct():
            fields = msgspec.structs.asdict(answer)
            parts = {n: each for n, each in fields.items() if isinstance(each, PARTS)}
            if isinstance(answer, Listed) and not any(parts.values()):
                yield f"no {' or '.join(parts)}, as of position {answer.position}"
                return
            yield output.pairs((n, _text(each)) for n, each in fields.items() if n not in parts)
            for name, each in parts.items():
                if isinstance(each, msgspec.Struct):
                    yield from ("", name, *_shown(each))
                elif each:
                    yield from ("", *_listed(each))
        case bool():
            yield "done" if answer else "already so: nothing was written"
        case None:
            yield "done"
        case _:
            yield str(answer)


def _listed(answer: Sequence[Any]) -> Iterable[Part]:
    if isinstance(answer[0], msgspec.Struct):
        names = answer[0].__struct_fields__
        return [output.listing([Column(name, partial(_cell, name)) for name in names], answer)]
    return [output.styled("\n".join(str(_text(each)) for each in answer))]


def _text(value: Any, most: int = LINE) -> Any:
    """Return a value for people: texts with commas between them, JSON of anything nested."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if not isinstance(value, dict | list | tuple | msgspec.Struct):
        return value
    plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))  # also of raw JSON
    return output.preview(plain, most) if value else ""


def _cell(name: str, row: Any) -> Any:
    return _text(getattr(row, name), output.PREVIEW_CHARACTERS)


# These are here, since the modules of frequent commands load no operation.

run = Commands()
experiment = Commands()

derive(experiment, Experiments, "stop", views={"stop": "experiment {name} is stopped"})


async def _not_left(record: AsyncRecord, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Name the agents that had not left a run when it was ended."""
    if "task" in arguments or not arguments["result"]:
        return {}
    life = await record.workspace.states.commits(RunStream(arguments["run"]))
    agents = fold_life(life[:-1]).missing
    if agents:
        names = ", ".join(agents)
        output.hint(f"not stopped: {names}; an agent at work continues, and its calls are recorded")
    return {"at_work": agents}


derive(
    run,
    RecordOperations,
    "reopen finish cancel egress",
    views={
        "reopen": "task {task} of run {run} is open",
        "finish": "run {run} is ended",
        "finish failed": "run {run} is ended as failed",
        "cancel": "run {run} is cancelled",
    },
    facts=_not_left,
)
