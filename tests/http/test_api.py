"""The API of `hansard up --http`: workspaces, problems and positions."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Lab


async def test_a_read_answers_with_the_position_of_the_log(lab: Lab):
    """The header has the position of the newest commit."""
    async with lab.record.run("work", agent="a", role="worker"):
        pass
    head = await lab.record.workspace.log.head()
    answer = await lab.http.get(lab.at(""))
    assert answer.json() == {"workspace": lab.name, "role": None, "position": head}
    assert answer.headers["hansard-position"] == f"{head}"


async def test_an_unknown_parameter_and_workspace_are_problems(lab: Lab):
    """Each problem has its fact, value and remedy."""
    cases: list[tuple[str, int, dict[str, Any]]] = [
        (lab.at("?a=1"), 400, {"value": "a", "title": "Bad option"}),
        ("/api/v1/other", 404, {"value": "workspace 'other'", "title": "Not found"}),
        ("/api/v1/UPPER", 400, {"value": "UPPER", "title": "Bad name"}),
    ]
    for path, status, fields in cases:
        answer = await lab.http.get(path)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (status, status)
        assert fields.items() <= problem.items()
        assert problem["remedy"]
        assert problem["fact"] in problem["detail"]
