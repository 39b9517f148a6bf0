"""Writes keys, one operation a key; may stop for ever around the intent or the outcome of one."""

from typing import Any

from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[Any]:
    """Return the result of each operation, those of earlier processes included."""
    settings = inside.job.settings
    place = {"run": settings.get("run", inside.job.run), "agent": "m", "role": "clerk"}
    with inside.connect() as record, record.run("team", **place) as session:
        board = session.board
        return [
            board.add("hits"),
            board.add("hits", 2),
            board.put("value", "mine", resolve="last writer"),
            board.append("log", "line"),
            board.include("names", "ada"),
            board.merge("most", "max", 7),
            board.remove("value", expected="any"),
        ]


if __name__ == "__main__":
    run_program(main)
