"""`record.experiments.compare`, `record.audit` and `record.why` for programs and notebooks."""

import asyncio
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rich.console

import hansard
from hansard.inspect.tables import read
from hansard.projections.snapshots import Reader
from tests.agents.twins import Lab, TwinRecord, at_once

pytestmark = pytest.mark.slow

HOSTILE = "<b>bold</b> \x1b[31m"
PLAN = hansard.experiments.plan(
    arms=["plain", "bold"], metrics=[{"name": "solved", "better": "higher"}]
)


def printed(made: Any) -> str:
    """Return the output of `rich.print`."""
    file = io.StringIO()
    rich.console.Console(file=file, width=300).print(made)
    return file.getvalue()


def as_json(lines: Any) -> list[Any]:
    """Return lines in the form for programs."""
    return [msgspec.json.decode(msgspec.json.encode(line, enc_hook=str)) for line in lines]


async def works(record: Any) -> None:
    """Record two trials of each arm, of which `bold` solves both, with one decision in each."""
    await record.experiments.register("e", PLAN)
    for arm in ("plain", "bold"):
        for task in ("t0", "t1"):
            placed = {"experiment": "e", "arm": arm, "task": task}
            async with record.run("w", run=f"{arm}-{task}", **placed) as session:
                await session.decide(
                    HOSTILE,
                    selected="yes",
                    alternatives=[{"id": "yes", "score": 0.5}, "no"],
                    threshold=0.5,
                )
            await record.experiments.score(
                f"{arm}-{task}", {"solved": int(arm == "bold")}, by="judge"
            )


@pytest.mark.thorough(quick="compare/test_compare.py::test_every_number_is_the_answer_of_sql")
def test_a_record_answers_what_the_commands_print(data_dir: Path, workspace: str, call: Any):
    """Answers are the command's lines; an unknown name lists the known ones."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        at_once(works(TwinRecord(record, is_async=False)))
        made = record.experiments.compare("e", metric="solved", baseline="bold")
        assert isinstance(made, hansard.experiments.ComparisonReport)
        [part] = made.report.judged
        [row] = [each for each in part.comparisons if each["default"]]
        assert (row["arm"], row["difference"], row["losses"]) == ("plain", -1, 2)
        listed = record.why("bold-t1")
        assert isinstance(listed, hansard.types.DecisionList)
        [decision] = listed.rows
        why = record.why(decision["decision"])
        assert isinstance(why, hansard.types.DecisionReport)
        page = why._repr_html_()
        assert ("&lt;b&gt;bold" in page, "<b>bold" in page) == (True, False)
        audited = record.audit(kinds="thresholds", severity="low")
        assert isinstance(audited, hansard.types.AuditReport)
        assert [len(group.found) for group in audited.groups()] == [4]
        commands: dict[tuple[str, ...], Any] = {
            ("compare", "e", "--metric", "solved", "--baseline", "bold"): made,
            ("audit", "--kind", "thresholds"): audited,
            ("audit", "bold-t1", "--flip", "0"): record.audit("bold-t1", flip=0),
            ("why", "bold-t1"): why,
            ("why", why.decision): why,
        }
        for command, answer in commands.items():
            output = call(*command, "--json")
            assert output.code == (0 if answer is not audited else 1), output.err
            assert output.lines == as_json(answer.lines()), command
        with pytest.raises(hansard.errors.CallerError, match=r"no experiment 'f': known are e"):
            record.experiments.compare("f")
        with pytest.raises(hansard.errors.BadOption, match="metric"):
            record.experiments.compare("e", metrc="solved")  # type: ignore[call-arg] # it is misspelt
        with pytest.raises(hansard.BadValue, match="missing"):
            record.experiments.compare("e", missing="maybe")
        with pytest.raises(hansard.BadValue, match="flip"):
            record.audit(flip=-1)
        with pytest.raises(
            hansard.errors.CallerError, match="no kind of finding is called 'thresh'"
        ):
            record.audit(kinds="thresh")
        for ask in (record.why, record.audit):
            with pytest.raises(hansard.NotFound):
                ask("nothing")


@pytest.mark.thorough(quick="domain/test_brief.py::test_a_fact_is_shown_in_a_line_and_in_a_table")
async def test_what_a_notebook_shows_is_never_markup(lab: Lab):
    """It has the terminal's tables; recorded text is escaped."""
    async with lab.connect() as record:
        await works(record)
        listed = await record.why("bold-t1")
        why = await record.why(listed.rows[0]["decision"])
        for answer in (listed, why):
            page, shown = answer._repr_html_(), printed(answer)
            assert "&lt;b&gt;bold" in page
            assert "<b>bold" not in page
            assert "\x1b" not in page + shown
            assert "<b>bold</b> \\x1b[31m" in shown
        audited = await record.audit()
        for form in (audited._repr_html_(), printed(audited)):
            assert "4 findings" in form
            assert "and 1 more" in form
            assert "Checked, nothing found" in form
        made = await record.experiments.compare("e")
        assert repr(made).startswith("ComparisonReport(experiment='e', baseline='plain'")
        for form in (made._repr_html_(), printed(made)):
            assert "Experiment e" in form
            assert "cannot tell" in form
        assert "<td style='text-align:right'>" in made._repr_html_()


def test_a_comparison_is_a_frame_and_a_figure(data_dir: Path, workspace: str):
    """`df()` and `plot()` give the rows and a figure."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        at_once(works(TwinRecord(record, is_async=False)))
        with pytest.raises(hansard.errors.CallerError, match="'intervals' of metric 'solved'"):
            record.experiments.compare("e").plot()  # two equal differences have no interval
        for arm in ("plain", "bold"):
            with record.run("w", run=f"{arm}-t2", experiment="e", arm=arm, task="t2"):
                pass
            record.experiments.score(f"{arm}-t2", {"solved": 0}, by="judge")
        made = record.experiments.compare("e")
        frame = made.df()
        rows = [row for part in made.report.judged for row in part.comparisons]
        assert list(frame.columns) == list(rows[0])
        judged = frame[frame["metric"] == "solved"]
        assert judged["difference"].tolist() == [row["difference"] for row in rows]
        assert set(frame["metric"]) > {"solved"}
        figure = made.plot()
        assert "difference of solved to plain" in figure.axes[0].get_xlabel()
        assert made.plot("pairs", metric="solved").axes
        with pytest.raises(hansard.errors.CallerError, match=r"no metric 'spead'.*solved"):
            made.plot(metric="spead")
        with pytest.raises(hansard.errors.CallerError, match=r"lines.*intervals"):
            made.plot("lines")
        assert {line.get_label() for line in made.plot("curves").axes[0].lines} == {"plain", "bold"}


ENDLESS = "SELECT count(*) FROM range(1_000_000_000_000) AS t(i) WHERE i % 7 = 3"


async def test_a_read_that_takes_too_long_or_that_nobody_waits_for_is_ended(data_dir, workspace):
    """Its tables stay open meanwhile, and the next read is answered."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        tables = record._local.opened_tables()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await tables.read(lambda reader: reader.all(ENDLESS))

        def slowly(reader: Reader) -> Any:
            return asyncio.run(read(reader, lambda again: again.all(ENDLESS), 0.2))

        with pytest.raises(hansard.errors.TooCostly, match=r"0\.2 s"):
            await tables.read(slowly)
        assert (await record.audit()).found == []
