"""Scripts of a cache: recorded data is text in them, never part of their code."""

import ast
import re
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.actions import ActionCheck, ElementTargets
from hansard.domain.errors import BadValue
from hansard.ext.browser.scripts import ScriptFormat, script
from tests.actions.test_cache import TEXTS, cache, entry

HOSTILE = st.one_of(
    TEXTS,
    st.sampled_from(
        [
            "'); import os; os.system('x') #",
            '"""\n)',
            "\\",
            "\\'",
            "\n\r\u2028\u2029\0",
            "${process.exit()}",
            "*/ x /*",
            "</script>",
            "{{user}}",
            "{{other}}",
            "\U0001f600",
        ]
    ),
)


def literals(source: bytes) -> list[str]:
    """Return the texts of a Python program."""
    tree = ast.parse(source)
    values = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)]
    return [each for each in values if isinstance(each, str)]


@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_texts_stay_texts_in_python(instruction, argument, label):
    """The program has the same statements for any text, and keeps the text exactly."""
    check = ActionCheck(kind="visible", value=label)
    hostile = cache(entry(instruction=instruction, arguments=[argument], checks=[check]))
    plain = cache(entry(checks=[ActionCheck(kind="visible", value="x")]))
    made = script(hostile, ScriptFormat.PLAYWRIGHT_PY)
    assert made.isascii()
    assert {argument, label} <= set(literals(made))
    shape, other = (
        [type(node).__name__ for node in ast.walk(ast.parse(source))]
        for source in (made, script(plain, ScriptFormat.PLAYWRIGHT_PY))
    )
    assert shape == other


@given(HOSTILE, HOSTILE)
def test_hostile_texts_stay_texts_in_typescript(instruction, argument):
    """Every text is JSON in one line, which is a literal of the language, too."""
    made = script(
        cache(entry(instruction=instruction, arguments=[argument])), ScriptFormat.PLAYWRIGHT_TS
    ).decode()
    assert made.isascii()
    assert "\r" not in made
    comment, call = [
        line.strip() for line in made.splitlines() if "// 0:" in line or ".fill(" in line
    ]
    assert msgspec.json.decode(comment.removeprefix("// 0: ")) == (instruction or "fill")
    match = re.search(r"\.fill\((.*)\);$", call)
    assert match is not None
    assert msgspec.json.decode(match.group(1)) == argument


@pytest.mark.parametrize("form", [each for each in ScriptFormat if each is not ScriptFormat.PYTHON])
def test_equal_caches_are_equal_bytes(form):
    """Slots are arguments, secrets environment variables, checks assertions."""
    recording = cache(
        entry(0, arguments=["to {{user}}!"]),
        entry(1, arguments=[{"$secret": "api-key"}]),
        entry(2, checks=[ActionCheck(kind="url", value="http://localhost/done*")]),
        slots=["user"],
    )
    made = script(recording, form)
    assert made == script(recording, form)
    text = made.decode()
    assert "slots[" in text
    assert "SECRET_API_KEY" in text
    assert "expect(page)" in text
    assert "hansard" not in text


def test_tools_are_imported_from_their_own_module():
    """Their arguments are literals; a format without a module names what is missing."""
    tool = entry(
        action_type="tool",
        method="send",
        xpath=None,
        action_params={"to": "{{user}}", "n": [1, None, True], "key": {"$secret": "k"}},
    )
    recording = cache(tool, slots=["user"])
    made = script(recording, ScriptFormat.PYTHON, "my.tools").decode()
    assert "from my.tools import send" in made
    assert "'n': [1, None, True]" in made
    assert "'key': os.environ['SECRET_K']" in made
    compile(made, "made.py", "exec")
    for form, module in ((ScriptFormat.PYTHON, ""), (ScriptFormat.PLAYWRIGHT_TS, "my.tools")):
        with pytest.raises(BadValue, match="send"):
            script(recording, form, module)
    with pytest.raises(BadValue, match="is no module name"):
        script(recording, ScriptFormat.PYTHON, "os; x")
    with pytest.raises(BadValue, match="actions of a page"):
        script(cache(entry()), ScriptFormat.PYTHON)


def test_a_declared_tool_is_called_by_a_script(tmp_path):
    """Without a session: the function, with the decorators that are its own."""
    (tmp_path / "mine.py").write_text(
        "import functools, hansard\n"
        "def loud(f):\n"
        "    @functools.wraps(f)\n"
        "    def g(**k): print('loud'); return f(**k)\n"
        "    return g\n"
        "@hansard.tool(effects='once')\n"
        "@loud\n"
        "def send(to): print('sent', to)\n"
        "@hansard.tool\n"
        "async def look(at): print('seen', at)\n"
        "def plain(n): print('plain', n)\n"
    )
    calls = (("send", {"to": "{{user}}"}), ("look", {"at": 1}), ("plain", {"n": None}))
    recording = cache(
        *(
            entry(at, action_type="tool", method=name, xpath=None, action_params=arguments)
            for at, (name, arguments) in enumerate(calls)
        ),
        slots=["user"],
    )
    (tmp_path / "made.py").write_bytes(script(recording, ScriptFormat.PYTHON, "mine"))
    command = [sys.executable, "made.py", "--user", "Ada"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:4] == ["loud", "sent Ada", "seen 1", "plain None"]


@pytest.mark.parametrize(
    ("targets", "python"),
    [
        ({"role": "button", "name": "Go", "alone": True}, ".get_by_role('button', name='Go', "),
        ({"role": "button", "name": "Go", "row": "Ada"}, ".locator('xpath="),
        ({"test_id": "go", "text": "Go"}, ".get_by_test_id('go')"),
        ({"test_id": "go", "row": "Ada"}, ".locator('xpath="),
        ({"label": "Name", "tag": "input"}, ".get_by_label('Name', "),
        ({"css": "a > b", "mark": "x"}, ".locator('css=a > b')"),
        ({"tag": "i", "row": "Ada"}, ".locator('xpath="),
    ],
)
def test_a_script_finds_by_role_and_name_first_and_by_xpath_last(targets, python):
    """A name is used only if it identified the element."""
    recording = cache(entry(targets=ElementTargets(**targets)))
    assert python in script(recording, ScriptFormat.PLAYWRIGHT_PY).decode()
    called = re.sub(r"_(\w)", lambda found: found[1].upper(), python.split("(")[0])
    assert f"{called}(" in script(recording, ScriptFormat.PLAYWRIGHT_TS).decode()
