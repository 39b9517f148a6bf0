"""The plugin in a project of its own: recorded once, then replayed with the network cut."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

PROJECT = """
import os, socket, urllib.request
import pytest

@pytest.fixture
def hansard_options():
    return {"redact": {"key": "sk-very-secret"}}

def agent(record, town, *calls):
    with record.run("weather", agent="ada") as session:

        @session.tool(effects="pure")
        def look(place, key):
            with open("calls.txt", "a") as file:
                file.write(place + "\\n")
            return place.upper()

        return [look(each, "sk-very-secret") for each in (town, *calls)]

@pytest.mark.hansard("weather.jsonl")
def test_agent(hansard_record):
    calls = os.environ.get("CALLS", "bonn,ulm").split(",")
    assert agent(hansard_record, *calls)[0] == calls[0].upper()
    if os.environ.get("NETWORK"):
        urllib.request.urlopen("http://127.0.0.1:9/")

@pytest.mark.parametrize("town", ["rom", "wien/1"])
@pytest.mark.hansard("towns/each.jsonl")
def test_towns(hansard_record, town):
    assert agent(hansard_record, town) == [town.upper()]
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Return a function that runs a project with one file of tests."""
    for name in ("CALLS", "NETWORK", "CI"):
        monkeypatch.delenv(name, raising=False)
    # Plugins of other packages that are found would be imported again by each run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_project=PROJECT)
    pytester.makeini("[pytest]")

    def run(*options):
        plugins = ("-p", "hansard.pytest_plugin", "-p", "no:randomly", "-p", "no:cacheprovider")
        return pytester.runpytest_inprocess(*plugins, *options)

    return run


def calls(pytester) -> int:
    """Return how often the tool ran."""
    file: Path = pytester.path / "calls.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_first_run_records_and_later_ones_run_no_tool(project, pytester):
    """Each test and parameter has its own file, without secrets; a replay leaves it unchanged."""
    project().assert_outcomes(passed=3)
    files = sorted(path for path in pytester.path.rglob("*.jsonl"))
    assert [path.name for path in files] == [
        *("each-rom.jsonl", "each-wien_1-217772d1.jsonl", "weather.jsonl")
    ]
    before = [path.read_bytes() for path in files]
    assert not any(b"sk-very-secret" in each for each in before)
    assert calls(pytester) == 4
    project().assert_outcomes(passed=3)
    assert calls(pytester) == 4
    assert [path.read_bytes() for path in files] == before


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("made", "lines"),
    [
        ("bonn,köln", ["*ulm*", "*now:*köln*", "*--hansard=all*"]),
        ("bonn", ["*1 call on record not made*", "*- *look*ulm*", "*--hansard=all*"]),
        ("bonn,ulm,rom", ["*now:*rom*", "*--hansard=all*"]),
    ],
)
def test_a_changed_a_missing_and_an_added_call_fail(project, pytester, monkeypatch, made, lines):
    """Both sides are printed."""
    project("-k", "agent").assert_outcomes(passed=1)
    monkeypatch.setenv("CALLS", made)
    failed = project("-k", "agent")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(lines)
    assert calls(pytester) == 2


@pytest.mark.thorough(quick="test_the_first_run_records_and_later_ones_run_no_tool")
def test_each_set_of_parameters_has_a_recording_of_its_own(project, pytester):
    """Recordings stay separate even for parameters that differ only in characters not valid in
    names.
    """
    text = PROJECT.replace('["rom", "wien/1"]', '["wien/1", "wien_1", "wien 1", "維也納"]')
    pytester.makepyfile(test_project=text)
    project("-k", "towns").assert_outcomes(passed=4)
    assert len([*(pytester.path / "towns").iterdir()]) == 4
    project("-k", "towns").assert_outcomes(passed=4)
    assert calls(pytester) == 4


def test_the_flag_records_again(project, pytester, monkeypatch):
    """The flag replaces the recording by the current calls."""
    project("-k", "agent").assert_outcomes(passed=1)
    monkeypatch.setenv("CALLS", "bonn,ulm,rom")
    project("-k", "agent", "--hansard=all").assert_outcomes(passed=1)
    project("-k", "agent").assert_outcomes(passed=1)
    assert calls(pytester) == 2 + 3


@pytest.mark.parametrize("options", [(), ("--hansard=none",)], ids=["CI", "none"])
def test_without_a_recording_ci_performs_no_effect(project, pytester, monkeypatch, options):
    """With CI set, or with `none`, a missing recording fails the test before a tool runs."""
    if not options:
        monkeypatch.setenv("CI", "true")
    failed = project("-k", "agent", *options)
    failed.assert_outcomes(errors=1)
    failed.stdout.fnmatch_lines(["*recording *weather.jsonl is missing*--hansard=once*"])
    assert calls(pytester) == 0
    assert not list(pytester.path.rglob("*.jsonl"))
    project("-k", "agent", "--hansard=once").assert_outcomes(passed=1)
    project("-k", "agent", *options).assert_outcomes(passed=1)
    assert calls(pytester) == 2


@pytest.mark.thorough(quick="test_the_flag_records_again")
def test_new_records_missing_calls_and_replays_the_others(project, pytester, monkeypatch):
    """By `new` only the added call runs, and the file has all of them from then on."""
    project("-k", "agent").assert_outcomes(passed=1)
    monkeypatch.setenv("CALLS", "bonn,ulm,rom")
    project("-k", "agent", "--hansard=new").assert_outcomes(passed=1)
    assert calls(pytester) == 2 + 1
    project("-k", "agent", "--hansard=none").assert_outcomes(passed=1)
    assert calls(pytester) == 2 + 1


def test_a_replay_reaches_no_network_and_a_failed_test_records_nothing(
    project, pytester, monkeypatch
):
    """A replay refuses network addresses, and a failed test records nothing."""
    monkeypatch.setenv("NETWORK", "1")
    project("-k", "agent").assert_outcomes(failed=1)
    assert not list(pytester.path.rglob("*.jsonl"))
    monkeypatch.delenv("NETWORK")
    project("-k", "agent").assert_outcomes(passed=1)
    monkeypatch.setenv("NETWORK", "1")
    failed = project("-k", "agent")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*a replay has no network*"])


@pytest.mark.thorough(quick="test_a_changed_a_missing_and_an_added_call_fail")
def test_runs_and_agents_that_are_missing_fail_and_one_file_has_one_test(project, pytester):
    """Recorded runs and agents that the test did not begin fail it."""
    begin = "    with hansard_record.run('one', agent='ada'):\n        pass\n"
    head = "import pytest\n@pytest.mark.hansard('r.jsonl')\ndef test_r(hansard_record):\n"
    pytester.makepyfile(test_project=head + begin + begin)
    project().assert_outcomes(passed=1)
    pytester.makepyfile(test_project=head + begin)
    fewer = project()
    fewer.assert_outcomes(passed=1, errors=1)
    fewer.stdout.fnmatch_lines(["*on record: 2 runs*", "*now:*1, not 'one'*"])
    pytester.makepyfile(test_project=head + begin.replace("'one'", "'two'"))
    other = project()
    other.assert_outcomes(failed=1)
    other.stdout.fnmatch_lines(["*run 1 is of 'one'*"])
    both = (head + begin).replace("test_r", "test_q").replace("import pytest\n", "")
    pytester.makepyfile(test_project=head + begin + both)
    assert project().ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.thorough(quick="test_a_changed_a_missing_and_an_added_call_fail")
def test_workers_of_xdist_record_and_replay(pytester, monkeypatch):
    """Each test writes its own file."""
    pytester.makepyfile(test_project=PROJECT)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of six processes
    options = ("-p", "hansard.pytest_plugin", "-p", "xdist", "-n", "2")
    for _ in range(2):
        pytester.runpytest_subprocess(*options).assert_outcomes(passed=3)
    assert calls(pytester) == 4
