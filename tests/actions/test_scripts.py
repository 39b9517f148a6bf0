"""Scripts of a cache: what is recorded is a text in them, never a part of their code."""

import ast
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.actions.cache import ActionCheck
from hansard.domain.errors import BadValue
from hansard.inspect.action_scripts import ScriptFormat, script
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
    """The texts of a Python program."""
    tree = ast.parse(source)
    values = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)]
    return [each for each in values if isinstance(each, str)]


@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_texts_stay_texts_in_python(instruction, argument, label):
    """The program has the same statements whatever they say, and says them exactly."""
    check = ActionCheck(kind="visible", value=label)
    said = cache(entry(instruction=instruction, arguments=[argument], checks=[check]))
    plain = cache(entry(checks=[ActionCheck(kind="visible", value="x")]))
    made = script(said, ScriptFormat.PLAYWRIGHT_PY)
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
    found = re.search(r"\.fill\((.*)\);$", call)
    assert found is not None
    assert msgspec.json.decode(found.group(1)) == argument


@pytest.mark.parametrize("form", [each for each in ScriptFormat if each is not ScriptFormat.PYTHON])
def test_equal_caches_are_equal_bytes(form):
    """Slots are arguments, secrets environment variables, checks assertions."""
    said = cache(
        entry(0, arguments=["to {{user}}!"]),
        entry(1, arguments=[{"$secret": "api-key"}]),
        entry(2, checks=[ActionCheck(kind="url", value="http://localhost/done*")]),
        slots=["user"],
    )
    made = script(said, form)
    assert made == script(said, form)
    text = made.decode()
    assert "slots[" in text
    assert "SECRET_API_KEY" in text
    assert "expect(page)" in text
    assert "hansard" not in text


def test_tools_are_imported_from_their_own_module():
    """Their arguments are literals; without a module the format says what is missing."""
    tool = entry(
        action_type="tool",
        method="send",
        xpath=None,
        action_params={"to": "{{user}}", "n": [1, None, True], "key": {"$secret": "k"}},
    )
    said = cache(tool, slots=["user"])
    made = script(said, ScriptFormat.PYTHON, "my.tools").decode()
    assert "from my.tools import send" in made
    assert "'n': [1, None, True]" in made
    assert "'key': os.environ['SECRET_K']" in made
    compile(made, "made.py", "exec")
    for form, module in ((ScriptFormat.PYTHON, ""), (ScriptFormat.PLAYWRIGHT_TS, "my.tools")):
        with pytest.raises(BadValue, match="send"):
            script(said, form, module)
    with pytest.raises(BadValue, match="no name"):
        script(said, ScriptFormat.PYTHON, "os; x")
    with pytest.raises(BadValue, match="actions of a page"):
        script(cache(entry()), ScriptFormat.PYTHON)
