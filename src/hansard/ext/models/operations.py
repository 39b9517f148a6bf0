"""Operations of the slice `models`."""

from __future__ import annotations

import msgspec

from hansard.extending import C_co, Noun, operation, queries
from hansard.inspect.answer import find_run


class ModelCall(msgspec.Struct, frozen=True):
    """A call of a model: see the view `model_calls`."""

    run: str
    agent: str
    step: int
    operation: str
    model: str | None
    status: str
    answered_by: str
    http_status: int | None
    ended: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    error: str | None


class Models(Noun[C_co], noun="models"):
    """Calls of models."""

    @operation(needs=queries("models.calls"))
    async def calls(self, *, run: str | None = None, limit: int = 100) -> list[ModelCall]:
        """List calls of models, the newest first.

        Args:
            run: Only calls of this run: an id, a unique prefix of one, or 'last'.
            limit: The most calls.

        Raises:
            NotFound: There is no such run.
            Ambiguous: Several runs begin with this prefix.
        """
        if run is not None:
            run = await find_run(self._workspace, run)
        columns = ", ".join(ModelCall.__struct_fields__).replace(
            "operation", "concat(provider, '.', operation)"
        )
        answer = await self.query(
            f"SELECT {columns} FROM model_calls WHERE $1 IS NULL OR run = $1 "  # noqa: S608 -- constants
            "ORDER BY position DESC LIMIT $2",
            run,
            limit,
        )
        return [ModelCall(*row) for row in answer.rows]
