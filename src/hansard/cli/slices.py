"""Commands of slices: one for each of their operations, made from its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
import typer

import hansard
from hansard.bus import slices
from hansard.cli import output
from hansard.cli.common import Commands, argument, option
from hansard.cli.opening import connecting
from hansard.cli.output import Column, Part
from hansard.domain.errors import BadValue
from hansard.operations.declare import Operation, documented, of_record

PLAIN = (str, int, float, bool)
TEXTS = Sequence[str]
"""Of these types a command takes words: one, and several."""


def group(name: str) -> Any:
    """Return the group of a slice's commands; None if it is not installed."""
    extension = next((each for each in slices.installed() if each.name == name), None)
    if extension is None:
        return None
    commands = Commands(name=name, help=f"Operations of the installed slice {name!r}.")
    for noun in extension.operations():
        for operation in of_record(noun, also_trusted=True).values():
            name = operation.attribute.replace("_", "-")
            commands.command(name, help=documented(operation)[0])(_function(operation))
    commands.callback()(lambda: None)  # a group, also of one command
    return typer.main.get_group(commands)


def _function(operation: Operation) -> Any:
    """Return the function of a command, with the parameters of an operation."""
    _, texts = documented(operation)
    own_parameters = [each for each in operation.here.parameters.values() if each.name != "self"]
    as_json = {each.name for each in own_parameters if _plain(operation.hints[each.name]) is None}

    def run(**arguments: Any) -> None:
        for key in as_json & {name for name, value in arguments.items() if isinstance(value, str)}:
            arguments[key] = _decoded(key, arguments[key])
        with hansard.connect(**connecting()) as record:
            answer = operation.method_of(record)(**arguments)
        output.show(answer, _shown(answer))

    parameters = []
    for each in own_parameters:
        text = texts.get(each.name, "") + (" As JSON." if each.name in as_json else "")
        kind = _plain(operation.hints[each.name]) or str
        is_last = kind == list[str] and each.kind is not each.KEYWORD_ONLY
        is_option = each.kind is each.KEYWORD_ONLY or not (each.default is each.empty or is_last)
        name, default = each.name.rstrip("_"), each.default
        named = [f"--{name}"] * (name != each.name)  # such as `as_`, a word of the language
        mark = option(text, None, *named) if is_option else argument(name.upper(), text)
        if kind == list[str] and default is not each.empty:
            default = list(default)
        if each.name in as_json and default is not each.empty:
            kind, default = kind | None, None
        parameters.append(each.replace(annotation=Annotated[kind, mark], default=default))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _plain(hint: Any) -> Any:
    """Return the type of a parameter as a command takes it; None for one that it takes as JSON."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint == TEXTS:
        return list[str]
    if hint in PLAIN or ({*get_args(hint)} <= {*PLAIN, type(None)} and get_args(hint)):
        return hint
    return None


def _decoded(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadValue(name, f"{text!r:.80} is not JSON: {error}", "give one JSON value") from error


def _shown(answer: Any) -> Iterable[Part]:
    """Return an answer for people: a table of objects, the fields of one, or the value."""
    if isinstance(answer, list) and answer and isinstance(answer[0], msgspec.Struct):
        return [output.listing([Column(name) for name in answer[0].__struct_fields__], answer)]
    if isinstance(answer, msgspec.Struct):
        return [output.pairs(msgspec.structs.asdict(answer).items())]
    if isinstance(answer, list):
        return [output.styled("\n".join(map(str, answer)))] if answer else [output.Hint("nothing")]
    return [output.Hint("done") if answer is None else output.styled(str(answer))]
