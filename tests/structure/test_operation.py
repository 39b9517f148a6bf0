"""An operation is declared in one place."""

from tests.structure.operation import operation, places


def test_an_operation_has_one_declaration():
    """Its source names it once, in its noun; tests and documentation name it, too."""
    where = places("prompts.retire")
    [declared] = where["declaration"]
    assert declared.startswith("src/hansard/operations/prompts.py:")
    assert [place.rpartition("/")[0] for place in where["calls"]] == [
        "src/hansard/agents/artifacts"
    ]
    assert all(place.startswith("src/hansard/cli/") for place in where.get("src", []))
    assert where["tests"]
    assert where["docs"]
    assert operation("prompts.retire").request.__struct_config__.tag == "record.prompts.retire"
