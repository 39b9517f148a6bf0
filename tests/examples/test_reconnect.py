"""A user who returns after the time-out, in another process, continues the conversation."""

import os
import subprocess
import time
from pathlib import Path

import pytest

import hansard
from tests.cli.support import environment
from tests.examples.support import EXAMPLES, PROGRAM_S_MAX
from tests.faults._warm import python

pytestmark = pytest.mark.slow

PROGRAM = EXAMPLES / "reconnect" / "assistant.py"
THIRD = """welcome back, ada: 9 messages are in the window
summed up 4 of them: Books: *Emma*, *Persuasion*.
ada: which ones did I name?
assistant: So far: Silas Marner, Middlemarch, Persuasion, Emma.
the session is over; start again to go on
"""


def _started(data_dir: Path, workspace: str, *texts: str) -> str:
    done = subprocess.run(
        [python(), str(PROGRAM), "ada", *texts],
        env=environment(data_dir, HANSARD_WORKSPACE=workspace),
        check=True,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
    )
    return done.stdout


def _until_timeout(data_dir: Path, workspace: str, *lines: str) -> str:
    """Return its output for a user who types lines and then is silent, without hanging up."""
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [python(), str(PROGRAM), "ada"],
        env=environment(data_dir, HANSARD_WORKSPACE=workspace),
        stdin=ours,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        os.close(ours)
        os.write(theirs, "".join(f"{line}\n" for line in lines).encode())
        began = time.monotonic()
        output, _ = child.communicate(timeout=PROGRAM_S_MAX)
        assert time.monotonic() - began > 1
    os.close(theirs)
    assert child.returncode == 0
    return output


@pytest.mark.slow
def test_the_conversation_goes_on_after_a_time_out(data_dir: Path, workspace: str):
    """Three processes after a time-out continue the window, with a summary, all in full."""
    first = _until_timeout(
        data_dir, workspace, "I liked *Emma* very much", "and also *Persuasion* I think"
    )
    assert "assistant: So far: Persuasion, Emma.\nnothing was said for 2 s\n" in first
    texts = ("what about *Middlemarch*, is it long?", "and *Silas Marner* perhaps?")
    second = _started(data_dir, workspace, *texts)
    assert second.startswith("welcome back, ada: 5 messages are in the window\n")
    assert "assistant: So far: Silas Marner, Middlemarch, Persuasion, Emma.\n" in second
    assert _started(data_dir, workspace, "which ones did I name?") == THIRD
    with hansard.connect(workspace, data_dir=data_dir) as record:
        conversation = record.conversation("ada")
        [row] = record.sql("SELECT run, messages, stands_for FROM compactions").dicts()
        query = "SELECT words FROM compacted JOIN history ON id = event ORDER BY number"
        words = [one["words"] for one in record.sql(query).dicts()]
    assert (len(conversation.runs), len(conversation.messages), len(conversation.window)) == (
        3,
        11,
        8,
    )
    assert conversation.window[:2] == [
        {"role": "system", "content": "You help with books. Answer in one sentence."},
        {"role": "system", "content": "Books: *Emma*, *Persuasion*."},
    ]
    assert (row["run"], row["messages"]) == (conversation.runs[2], 4)
    assert words == [f"{one['role']}: {one['content']}" for one in conversation.messages[1:5]]
