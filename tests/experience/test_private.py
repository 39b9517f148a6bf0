"""A form with personal fields: no value leaves this machine except to the form."""

import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.domain.actions import ElementTargets
from hansard.domain.errors import BadValue
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.checks import Guard
from hansard.domain.experience.distil import Demonstration
from hansard.domain.redaction import SECRET_LENGTH_MIN
from hansard.ext.browser.browser import HeldSecrets
from tests.experience.test_learning import shown

KINDS = ("Zacharias {}", "{}@example.org", "+49 30 55 {}", "DE89 3704 {} 4405", "{} Elm Street")
SEND = ElementTargets(role="button", tag="button", name="Send", text="Send")


def values_of(fields: int) -> dict[str, str]:
    """Return a value for each field; all names together exceed a line for a model."""
    name = "fieldoftheform" * max(1, 25 // fields)
    numbers = {f"{name}{n}": n for n in range(fields)}
    return {name: KINDS[n % len(KINDS)].format(7_130 + 97 * n) for name, n in numbers.items()}


def page_of(names: Iterable[str]) -> str:
    """Return a form with these fields, and two buttons with one name."""
    return (
        '<form onsubmit="event.preventDefault(); said.textContent = [...document.querySelectorAll('
        "'input')].map(each => each.value).join(' | ')\">"
        + "".join(
            f'<label>{name} <input id="{name}" oninput="now.textContent += this.value"></label>'
            for name in names
        )
        + "<button type=button>Send</button><button>Send</button></form>"
        "<p id=now></p><p id=said></p>"
    )


def shows(values: dict[str, str], source: str) -> Demonstration:
    """Return a demonstration that fills in all fields and sends the form."""
    fills = [
        shown(ElementTargets(role="textbox", tag="input", label=name, id=name), "fill", value)
        for name, value in values.items()
    ]
    task = "Fill in " + ", ".join(f'{name} "{value}"' for name, value in values.items())
    return Demonstration(task=task, actions=(*fills, shown(SEND)), success=True, source=source)


def learned(names: Iterable[str]) -> Any:
    """Return the experience of two people's values, with all proposed checks."""
    doings = [shows({n: f"{who} {n} x" for n in names}, who) for who in ("one", "two")]
    [distilled] = distil.distilled(doings)
    return experiences.made("fill-in", distilled).confirmed()


def held(raw: bytes, values: dict[str, str]) -> list[str]:
    """Return the values that bytes contain, as they are or in JSON."""
    forms = [(each, json.dumps(each)[1:-1]) for each in values.values()]
    return [one for one, other in forms if one.encode() in raw or other.encode() in raw]


def on_disk(folder: Path) -> bytes:
    """Return the content of all files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("fields", [5, pytest.param(40, marks=pytest.mark.thorough)])
async def test_no_value_of_a_form_is_in_any_request_log_line_entry_or_script(
    page, site, data_dir, workspace, tmp_path, caplog, fields
):
    """All values are secret slots, and the model's page is sent without them."""
    questions: list[str] = []

    def model(question: str) -> str:
        questions.append(question)
        lines = [each for each in question.splitlines() if re.search(r"<button> Send$", each)]
        return json.dumps({"id": lines[-1].split()[0]})

    values = values_of(fields)
    experience = learned(values)
    slots = experience.procedure.slots
    params = {slot: hansard.Secret(name) for slot, name in zip(slots, values, strict=True)}
    caplog.set_level(logging.DEBUG)
    async with hansard.connect_async(workspace, data_dir=data_dir, secrets=values) as record:
        await page.goto(site(page_of(values)))
        async with record.run("fill-in", agent="host", role="host") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
            result = await browser.run_experience(experience, params, once="allow", fallback=model)
            assert result.success, result.error
            read = await browser.extract("what was sent", at="#said")
            run = session.run
        assert await page.inner_text("#said") == " | ".join(values.values())
        assert read == " | ".join(f"<secret:{name}>" for name in values)
        cache = await record.actions.of_run(run)
        left = await record.egress(run)
    assert len(questions) == 1
    assert 0 < questions[0].count("<secret:") < fields  # a line is cut after redaction
    script = tmp_path / "script.json"
    script.write_bytes(msgspec.json.encode(cache))
    entries = on_disk(Path(data_dir))
    assert b"browser.act" in entries  # what is on record is read here as it is on disk
    assert held(entries, values) == []
    assert held("".join(questions).encode(), values) == []
    assert not any(each[:SECRET_LENGTH_MIN] in questions[0] for each in values.values())
    assert held(caplog.text.encode(), values) == []
    assert held(script.read_bytes(), values) == []
    assert held(b"".join(experiences.files(experience).values()), values) == []
    assert held(msgspec.json.encode(left), values) == []
    assert {(each.kind, each.destination) for each in left} == {
        ("model", "browser.ask"),
        ("page", "a file"),
    }
    fills = [each for each in left if each.secrets and each.kind == "page"]
    assert [each.secrets for each in fills] == [(name,) for name in values]


def test_a_secret_is_a_whole_argument():
    """A secret inside of a longer argument is refused, since an element's name would hold it."""
    doings = [
        Demonstration(
            task=f'Greet "{name}".',
            actions=(shown(SEND), shown(SEND, "press", f"Hello {name}")),
            success=True,
            source=name,
        )
        for name in ("Ada", "Alan")
    ]
    [distilled] = distil.distilled(doings)
    made = experiences.made("greet", distilled).confirmed()
    with pytest.raises(BadValue, match="is a secret, and is part of a text of press"):
        Guard(made.procedure, made.checks, {"greet": hansard.Secret("who")})


def test_what_a_page_shows_of_a_secret_is_its_name():
    """A page's secret is replaced by its name, in any spacing; short ones only as whole words."""
    held_ones = HeldSecrets()
    held_ones.add(["a", "", "b"], ["Ada  Lovelace", "no secret", "12"])
    state = {"text": "xAda Lovelacey, 12 or 123, no secret", "xpath": "/div[12]", "all": ["12"]}
    assert held_ones.without(state) == {
        "text": "x<secret:a>y, <secret:b> or 123, no secret",
        "xpath": "/div[12]",
        "all": ["<secret:b>"],
    }
