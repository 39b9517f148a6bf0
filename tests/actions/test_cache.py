"""File format of the action cache: accepted and refused content, versions and slots."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.domain import actions as caches
from hansard.domain.actions import (
    TOOL,
    ActionCache,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    compared,
    contradicts,
    decode,
    encode,
    filled,
    locators,
    normalized,
    templated,
    variants,
    with_slots,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.fingerprint import canonical

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def entry(index: int = 0, **fields: Any) -> CachedAction:
    """Return a complete entry."""
    defaults: dict[str, Any] = {
        "step_index": index,
        "instruction": "enter the name",
        "element_id": "0-7",
        "method": "fill",
        "arguments": ["Ada"],
        "frame_index": 0,
        "xpath": "/html[1]/body[1]/form[1]/input[1]",
        "action_type": "actElement",
        "success": True,
        "message": "done",
        "effects": "idempotent",
    }
    return CachedAction(**defaults | fields)


def cache(*entries: CachedAction, **fields: Any) -> ActionCache:
    """Return a file of entries."""
    end = ActionsEnd(success=True, duration=0.5)
    return ActionCache(actions=list(entries), final_state=end, format=caches.FORMAT, **fields)


def test_a_file_has_the_fields_that_others_read():
    """Each entry has the ten fields by their names, also where they are empty."""
    document = msgspec.json.decode(
        encode(cache(entry(xpath=None, targets=ElementTargets(label="Name"))))
    )
    assert list(document)[:2] == ["actions", "finalState"]
    assert list(document["actions"][0])[:10] == [
        *("stepIndex", "instruction", "elementId", "method", "arguments", "frameIndex"),
        *("xpath", "actionType", "success", "message"),
    ]
    assert document["finalState"] == {"success": True, "duration": 0.5}


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
def test_a_file_is_read_as_it_was_written(texts):
    """Any text is kept, and equal caches are equal bytes."""
    written = cache(*(entry(at, instruction=a, arguments=[b]) for at, (a, b) in enumerate(texts)))
    assert decode(encode(written)) == written
    assert encode(decode(encode(written))) == encode(written)


def test_what_failed_is_no_entry():
    """A failure in a file is left out where it is read."""
    assert decode(encode(cache(entry(0), entry(1, success=False)))).actions == [entry(0)]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no JSON"),
        (encode(cache(entry()))[:-40], "no JSON, or cut"),
        (b"[" * 100_000, "no JSON"),
        (b'{"format": "hansard.actions.v9", "actions": []}', "hansard.actions.v9"),
        (b"[]", "format is 'list'"),
        (b'{"steps": 3}', "`steps`"),
        (encode(cache(entry(method="explode"))), "method 'explode'"),
        (encode(cache(entry(action_type="teleport"))), "actionType 'teleport'"),
        (encode(cache(entry(arguments=[]))), "fill without its argument"),
        (encode(cache(entry(xpath="/a" * 500_000))), "1,000,000 characters"),
        (encode(cache(entry(xpath="//*" * 40))), "40 axes"),
        (encode(cache(entry(xpath=None))), "neither xpath nor targets"),
        (encode(cache(entry(0), entry(0))), "one stepIndex"),
        (encode(cache(entry())).replace(b'"stepIndex": 0', b'"stepIndex": "x"'), "stepIndex"),
    ],
)
def test_a_bad_file_is_refused_with_the_fact_and_the_remedy(raw, message):
    """Other versions, cut, unknown methods, xpaths that a browser would take long over."""
    with pytest.raises(BadValue) as caught:
        decode(raw)
    assert message in str(caught.value)
    assert caught.value.remedy


def test_a_file_of_hyperagent_is_read():
    """Failures and actions without effect on the page are dropped (`steps`, `actionParams`)."""
    step = {"stepIndex": 0, "success": True, "message": "ok", "arguments": [], "frameIndex": None}
    none = {"instruction": None, "elementId": None, "method": None, "xpath": None}
    raw = msgspec.json.encode(
        {
            "taskId": "t",
            "createdAt": "2026-01-01",
            "status": "completed",
            "steps": [
                step | none | {"actionType": "goToUrl", "actionParams": {"url": "http://x/"}},
                step
                | {
                    "stepIndex": 1,
                    "actionType": "actElement",
                    "instruction": "choose",
                    "elementId": "0-12",
                    "method": "selectOptionFromDropdown",
                    "arguments": ["two"],
                    "frameIndex": 0,
                    "xpath": "xpath=/html/body/select",
                },
                step | none | {"stepIndex": 2, "actionType": "wait", "actionParams": {"ms": 5}},
                step | none | {"stepIndex": 3, "actionType": "complete"},
            ],
        }
    )
    first, second = decode(raw).actions
    assert (first.action_type, first.arguments) == ("goToUrl", ["http://x/"])
    assert (second.method, second.arguments) == ("selectOption", ["two"])
    assert (second.xpath, second.effects) == ("/html/body/select", "idempotent")


def test_a_heal_is_a_version():
    """A heal is the next version, with the replaced entry, author, time and reason."""
    first = cache(entry())
    moved = entry(xpath="/html[1]/body[1]/main[1]/input[1]")
    healed = caches.healed(first, moved, at="2026-01-01T00:00:00Z", by="ada", why="0 matched")
    assert (healed.version, healed.actions, healed.history[0].before) == (2, [moved], entry())


def test_an_xpath_is_normalised():
    """An index at each step of a plain path, no text node, no prefix; others stay."""
    assert normalized("xpath=/HTML/body/div[2]/text()[1]") == "/html[1]/body[1]/div[2]"
    assert normalized('//*[@id="a"]/b') == '//*[@id="a"]/b'


def test_variants_come_from_the_nearest_id_first_and_have_no_text():
    """Then an index less, from the last step on."""
    xpaths = variants('/html[1]/div[2]/a[contains(text(), "x")]', '//*[@id="a"]/a[1]')
    assert xpaths[:2] == ['//*[@id="a"]/a[1]', '//*[@id="a"]/a']
    assert "/html[1]/div[2]/a" in xpaths
    assert not [each for each in xpaths if "text()" in each]


@given(st.lists(st.sampled_from(["/a", "/b[1]", "//c[2]", '/*[@id="x/y"]', "/d[text()='q']"])))
def test_variants_are_few_and_none_is_the_xpath(steps):
    """However it is written."""
    xpath = "".join(steps)
    xpaths = variants(xpath)
    assert len(xpaths) <= 24
    assert xpath not in xpaths
    assert len(set(xpaths)) == len(xpaths)


def test_the_cached_xpath_is_looked_for_first():
    """The accessible role and name follow, then variants."""
    action = entry(targets=ElementTargets(role="textbox", name="Name", path='//*[@id="n"]'))
    strategies = [each.strategy for each in locators(action)]
    assert strategies[:3] == ["xpath", "role", "variant"]


def test_another_kind_of_element_is_not_the_recorded_one():
    """An element of another role or without the names is not clicked; a test id decides."""
    targets = ElementTargets(tag="button", role="button", name="Delete")
    assert contradicts(targets, ElementTargets(tag="button", role="button", name="Delete")) == ""
    assert "'Keep'" in contradicts(
        targets, ElementTargets(tag="button", role="button", name="Keep")
    )
    assert "tag" in contradicts(targets, ElementTargets(tag="a", role="button", name="Delete"))
    by_id = ElementTargets(tag="button", name="Delete", test_id="d")
    assert contradicts(by_id, ElementTargets(tag="a", name="Löschen", test_id="d")) == ""


def test_values_become_slots_and_slots_values():
    """Slots work in arguments, targets and text, as whole words; a missing or unknown one is
    reported.
    """
    plain = cache(entry(arguments=["Ada"], targets=ElementTargets(name="Hi Ada, Adam")))
    made = with_slots(plain, {"user": "Ada"})
    assert made.actions[0].arguments == ["{{user}}"]
    assert made.actions[0].targets == ElementTargets(name="Hi {{user}}, Adam")
    [again] = filled(made, {"user": "Bob"})
    assert (again.arguments, again.targets) == (["Bob"], ElementTargets(name="Hi Bob, Adam"))
    assert templated(again, {"user": "Bob"}) == made.actions[0]
    with pytest.raises(BadValue, match="no value for user"):
        filled(made, {})
    with pytest.raises(BadValue, match="no slot 'x'"):
        filled(plain, {"x": "1"})
    with pytest.raises(BadValue, match="itself"):
        with_slots(cache(entry(arguments=["{{user}}"])), {"user": "Ada"})


def test_what_differs_between_two_runs_is_a_slot():
    """And runs that did not do the same are not compared."""
    mine, other = cache(entry(0), entry(1, arguments=["x"])), cache(entry(0, arguments=["Bob"]))
    with pytest.raises(BadValue, match="not the same"):
        compared(mine, other)
    other = cache(*other.actions, entry(1, arguments=["x"]))
    made = compared(mine, other)
    assert (made.slots, made.actions[1].arguments) == (["slot1"], ["x"])
    assert made.actions[0].arguments == ["{{slot1}}"]


def test_what_differs_between_two_calls_of_a_tool_is_a_slot_of_its_arguments():
    """The tool gets the slot's value; a value that is not a text cannot be a slot."""

    def call(**params: object) -> ActionCache:
        text = canonical(params).decode()
        return cache(
            entry(method="invite", action_type=TOOL, arguments=[text], action_params=params)
        )

    made = compared(
        call(guest="Ada", seats=[{"at": "Ada's"}]), call(guest="Bo", seats=[{"at": "x"}])
    )
    [again] = filled(made, {"slot1": "Zed", "slot2": "Ulm"})
    assert again.action_params == {"guest": "Zed", "seats": [{"at": "Ulm"}]}
    with pytest.raises(BadValue, match=r"an argument is 1 in one and 2 in the other; .* a text"):
        compared(call(number=1), call(number=2))
    with pytest.raises(BadValue, match="a slot holds a text"):
        compared(call(guest=""), call(guest="Bo"))


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), TEXTS.filter(bool), max_size=3)
)
def test_a_secret_is_never_a_slot(params):
    """A secret stays a name, whatever the values are."""
    plain = cache(
        entry(arguments=[{"$secret": "pw"}]), entry(1, arguments=list(params.values()) or [""])
    )
    assert with_slots(plain, params).actions[0].arguments == [{"$secret": "pw"}]


def test_the_sync_client_says_what_to_take_instead(record):
    """A page's actions are the async client's: the sync session's methods name it."""
    with record.run("w") as session:
        with pytest.raises(Refused, match="connect_async"):
            hansard.actions.AsyncBrowser(session, "page")
        with pytest.raises(BadValue, match="needs a page, and there is none"):
            hansard.actions.Replays(session).run_actions(cache(entry()))
