"""The record over HTTP: `hansard up --http`.

A module adds a read or a write as a function with typed parameters, and its name to `MODULES` in
`hansard.service.http.routes`:

    @read("/runs/{run}/outline")
    async def outline(context: Context, run: str, *, after: int = 0, limit: int = 500) -> Outline:
        '''Return the events of a run in order, as rows to draw.

Args:
            run: The run's id.
            after: Only rows after this position.
            limit: Most rows.
        '''

It answers `GET /api/v1/{workspace}/runs/{run}/outline?after=&limit=`. Parameters in braces come
from the path, those after `*` from the query (a list repeats its name), and `body`, of a struct's
type, from the JSON of a `@write`. What it returns is encoded as JSON by msgspec; a `Response` of
Starlette, such as a stream, is sent as it is. The OpenAPI document takes the rest from the
signature and the docstring. Errors of Hansard become problems of RFC 9457 (`problems.py`).

The context has the `caller`, the open `record` as that caller sees it (for the operator, the
trusted record, also as `context.trusted()`), and the `request`. A result with a `position` states
it in `Hansard-Position`; else set `context.position`. A function of the server itself, without a
workspace, is declared with `@at_server("GET", "/healthz")`, and gets the application (`app.py`).
"""
