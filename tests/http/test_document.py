"""Requests made of the OpenAPI document: no answer is a failure of ours, and each fits it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from itertools import islice
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import hansard
from hansard.broker.lease import join
from tests.cli.test_up import up
from tests.faults._warm import python
from tests.late import LATE

if LATE:
    import schemathesis
    from schemathesis.core.result import Ok

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-enough-characters"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
EXPECTED = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.NOT_IMPLEMENTED}
"""Statuses from 500 on that are answers: not yet, and an extra that is not installed."""

KNOWN = {"run": "last", "other": "last", "name": "tone", "reference": "tone@1"}
"""Values with which operations find something, beside those that are made up."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a service with a few runs and a prompt."""
    home = tmp_path_factory.mktemp("document")
    (home / "token").write_text(TOKEN)
    (home / "token").chmod(0o600)
    with join(home), hansard.connect("lab", data_dir=home) as record:
        for number in range(3):
            with record.run("work", agent="a", role="worker") as session:
                session.message("user", f"message {number}")
                session.board.put("k", number)
        record.prompts.add("tone", "Be brief.")
        more = ("-w", "lab", "--json", "--http", "0", "--token-file", str(home / "token"))
        with up(home, *more, program=python()) as process:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["http"]


def document_of(url: str) -> dict[str, Any]:
    """Return the document, with values of this workspace, and without streams and slices."""
    document: dict[str, Any] = httpx2.get(f"{url}/api/v1/openapi.json").json()
    paths = {
        path: methods
        for path, methods in document["paths"].items()
        if "{workspace}" in path and not path.endswith("/live")
    }
    for methods in paths.values():
        for operation in methods.values():
            for each in operation["parameters"]:
                if each["name"] == "workspace":
                    each["schema"] = {"type": "string", "enum": ["lab"]}
                elif each["name"] == "wait_for":
                    each["schema"] = {"type": "integer", "minimum": 0, "maximum": 3}
                elif each["name"] in KNOWN:
                    known = {"type": "string", "enum": [KNOWN[each["name"]]]}
                    each["schema"] = {"anyOf": [known, {"type": "string"}]}
    return document | {"paths": paths}


def failures(url: str, examples: int, every: int = 1) -> list[str]:
    """Send requests to one operation in `every`; return what is wrong with their answers."""
    schema = schemathesis.openapi.from_dict(document_of(url))
    wrong: dict[str, str] = {}

    def check(case: schemathesis.Case) -> None:
        answer = case.call(base_url=url, headers=HEADERS, timeout=60)
        where = f"{case.method} {case.path}"
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            if answer.status_code not in EXPECTED:
                wrong.setdefault(where, f"{answer.status_code}: {case.as_curl_command()}")
        elif answer.status_code >= HTTPStatus.BAD_REQUEST:
            kind = answer.headers["content-type"][0]
            if kind != "application/problem+json":
                wrong.setdefault(where, f"{answer.status_code} as {kind}")
        else:
            try:
                case.operation.validate_response(answer)
            except schemathesis.errors.SchemathesisError as error:
                wrong.setdefault(where, f"{error}"[:400])
            except AssertionError as error:
                wrong.setdefault(where, f"{error}"[:400])

    for result in islice(schema.get_all_operations(), 0, None, every):
        assert isinstance(result, Ok), result
        operation = result.ok()
        run = given(case=operation.as_strategy())(check)
        settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )(run)()
    return [f"{where}: {fact}" for where, fact in sorted(wrong.items())]


def test_a_few_requests_of_some_operations(served: str):
    """No request makes the service fail, and each answer fits the document."""
    assert failures(served, 2, every=12) == []


@pytest.mark.timeout(1_800)
@pytest.mark.thorough(quick="test_a_few_requests_of_some_operations")
def test_many_requests_of_each_operation(served: str):
    """As above, of all operations, with more of them."""
    assert failures(served, 12) == []
