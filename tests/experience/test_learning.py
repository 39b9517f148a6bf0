"""Learning from demonstrations: the wording of the task, the graph of actions, its files."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import airline
from hansard.agents.memory.formats import skill_problems
from hansard.domain.actions import CachedAction, ElementTargets, PageMark
from hansard.domain.errors import BadValue
from hansard.domain.experience import checks as checking
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.checks import END, START, Walk
from hansard.domain.experience.distil import Demonstration, ShownAction, kinds, wording
from tests.experience.demos import FOLDER, demonstrations

NAME = ElementTargets(role="textbox", tag="input", label="Name", id="name")
SEND = ElementTargets(role="button", tag="button", name="Send", text="Send")
CLOSE = ElementTargets(role="button", tag="button", name="Close", text="Close")


def shown(
    targets: ElementTargets, method: str = "click", *arguments: str, present: tuple = ()
) -> ShownAction:
    """Return an action on an element, and the other elements of the page."""
    action = CachedAction(
        step_index=0,
        instruction=None,
        element_id=None,
        method=method,
        arguments=list(arguments),
        frame_index=0,
        xpath=None,
        action_type="actElement",
        success=True,
        message="",
        targets=targets,
        effects="once" if method == "click" else "idempotent",
    )
    return ShownAction(action=action, present=(NAME, SEND, *present))


def doing(name: str, *, popup: bool = False, success: bool = True) -> Demonstration:
    """Return a demonstration: close the popup, if any, and invite a guest."""
    actions = [shown(NAME, "fill", name, present=(CLOSE,) if popup else ())]
    if popup:
        actions = [shown(CLOSE, present=(CLOSE,)), shown(NAME, "fill", name)]
    return Demonstration(
        task=f'Invite "{name}" and send it.',
        actions=(*actions, shown(SEND)),
        success=success,
        source=f"run-{name}-{popup}-{success}",
    )


def learned(*doings: Demonstration) -> experiences.Experience:
    """Return the experience of demonstrations, with all proposed checks."""
    [distilled] = distil.distilled(doings)
    made = experiences.made("invite", distilled)
    checks = checking.proposed(made.procedure, hosts=("guests.example",))
    confirmed: experiences.Experience = msgspec.structs.replace(made, checks=checks)
    return confirmed


EIGHT = [
    doing(name, popup=popup)
    for name in ("Ada", "Alan", "Grace", "Edsger")
    for popup in (False, True)
]


def test_what_texts_share_is_the_wording_and_what_differs_is_a_slot():
    """A quoted text is one word; a text of another wording gives no values."""
    words = wording(['Enter "a b" as name, then "x"', 'Enter "c" as name, then "y z"'])
    assert words.template == 'Enter " {{enter}} " as name , then " {{then}} "'
    assert words.read('Enter "q, r" as name, then "s"') == {"enter": "q, r", "then": "s"}
    assert words.read("Delete everything") is None
    assert wording(["Press OK"]).slots == ()


@given(st.lists(st.text('ab "1.,{', min_size=1, max_size=30), min_size=1, max_size=5))
def test_each_text_that_a_wording_is_of_can_be_read_by_it(texts):
    """A wording gives only values that the text contains."""
    words = wording(texts)
    for text in texts:
        for value in (words.read(text) or {}).values():
            assert value in " ".join(text.split())


def test_tasks_are_of_one_kind_where_they_are_worded_alike():
    """Tasks of one kind differ in values, not in wording."""
    texts = ['Invite "Ada" please', "Delete all files now", 'Invite "Alan" please']
    assert kinds(texts) == [[0, 2], [1]]


def test_a_graph_says_what_follows_what_and_which_is_tried_first():
    """The popup is tried before the field under it; both need none, and sending needs the name."""
    made = learned(*EIGHT).procedure
    words_of = {each.name: distil.action_words(each.action) for each in made.nodes}
    by_words = {words: name for name, words in words_of.items()}
    name, send = by_words["fill {{invite}} Name"], by_words["click Send"]
    close = by_words["click Close"]
    assert made.after(START) == (close, name)
    assert made.after(name) == (send,)
    assert made.node(send).requires == (name,)
    assert made.node(name).requires == ()
    assert made.end_requires == (name, send)
    assert made.after(send) == (END,)


def test_the_order_of_doings_does_not_matter():
    """The same doings give the same procedure, to its names."""
    assert learned(*EIGHT).procedure == learned(*reversed(EIGHT)).procedure


def test_a_slip_of_the_hand_is_left_out_and_reported():
    """An action that one doing of many has is in no graph."""
    slip = doing("Barbara")
    slip = msgspec.structs.replace(slip, actions=(shown(NAME), *slip.actions))
    [distilled] = distil.distilled([*EIGHT, slip])
    assert [(each.source, each.why) for each in distilled.left_out] == [
        (slip.source, "click Name: in too few demonstrations")
    ]


def test_a_failed_doing_teaches_no_action():
    """A failed demonstration is listed as failed, and its own actions are not learned."""
    bad = msgspec.structs.replace(
        doing("Barbara", success=False), actions=(shown(CLOSE), shown(CLOSE))
    )
    [distilled] = distil.distilled([*EIGHT, bad, bad])
    assert distilled.failed == (bad.source, bad.source)
    assert distilled.procedure == learned(*EIGHT).procedure
    [alone] = distil.distilled([bad])
    with pytest.raises(BadValue, match="no demonstration of it succeeded"):
        experiences.made("nothing", alone)


def test_a_loop_has_the_bound_that_was_shown():
    """An action that was done twice at most is not done a third time."""
    twice = [msgspec.structs.replace(each, actions=(*each.actions, shown(SEND))) for each in EIGHT]
    made = learned(*twice).procedure
    send = next(each.name for each in made.nodes if each.visits_max == 2)
    at = Walk(at=send, visits={each.name: each.visits_max for each in made.nodes})
    assert send not in at.candidates(made)
    assert at.refusal(made, send) == f"{send} was done 2 times, its most"
    with pytest.raises(BadValue, match="its most"):
        at.stepped(made, send)


def test_an_experience_is_a_folder_that_reads_back_equal():
    """An experience's folder is a valid skill and reads back equal; equal ones have equal bytes."""
    made = learned(*EIGHT)
    texts = experiences.files(made)
    assert set(texts) == set(experiences.FILES)
    assert skill_problems(f"{made.name}/SKILL.md", texts["SKILL.md"].decode()) == []
    assert experiences.read(texts) == made
    assert experiences.files(experiences.read(texts)) == texts


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("graph.json", lambda raw: raw[:40], "no JSON, or cut"),
        ("graph.json", lambda raw: raw.replace(b"procedure.v1", b"procedure.v9"), "its format is"),
        ("graph.json", lambda raw: raw.replace(b'"after": "n1"', b'"after": "n99"'), "is no node"),
        (
            "graph.json",
            lambda raw: raw.replace(b'"visitsMax": 1', b'"visitsMax": 99999999'),
            "visitsMax 99999999",
        ),
        ("graph.json", lambda raw: raw.replace(b'"method": "fill"', b'"method": "ex"'), "'ex'"),
        (
            "graph.json",
            lambda raw: raw.replace(b'"xpath": null', b'"xpath": "' + b"/a" * 500_000 + b'"', 1),
            "an xpath of 1,000,000 characters",
        ),
        (
            "graph.json",
            lambda raw: raw.replace(b'"xpath": null', b'"xpath": "' + b"//*" * 50 + b'"', 1),
            "axes and functions",
        ),
        (
            "experience.json",
            lambda raw: raw.replace(b'"name"', b'"functions": [{}], "name"', 1),
            "functions",
        ),
        ("checks.json", lambda raw: raw.replace(b'"flow"', b'"eval"'), "Invalid value 'eval'"),
        ("checks.json", lambda raw: raw.replace(b'"node": "n1"', b'"node": "n99"'), "no node"),
        ("actions.json", lambda raw: raw.replace(b'"invite"', b'"other"'), "the task has invite"),
        ("experience.json", lambda raw: raw.replace(b"experience.v1", b"experience.v2"), "format"),
        ("experience.json", lambda _: b"[" * 100_000, "no JSON, or cut"),
    ],
)
def test_files_that_were_changed_are_refused(file, change, message):
    """The error names the file, its content and the remedy; nothing is taken."""
    texts = experiences.files(learned(*EIGHT))
    assert change(texts[file]) != texts[file]
    with pytest.raises(BadValue, match=message):
        experiences.read(texts | {file: change(texts[file])})
    with pytest.raises(BadValue, match=r"there is no graph\.json"):
        experiences.read({name: raw for name, raw in texts.items() if name != "graph.json"})


def test_a_lesson_that_rests_on_nothing_is_dropped():
    """Each sentence names steps of the doings that it was learned from."""
    made = learned(*EIGHT)
    step = f"{made.sources[0]}/host#2"
    kept = experiences.Lesson(says="Close the popup first.", rests_on=(step,))
    changed = experiences.with_sentences(
        made,
        {made.sources[0]: [step], "another-run": ["another-run/a#1"]},
        lessons=[
            kept,
            experiences.Lesson(says="Believe me.", rests_on=()),
            experiences.Lesson(says="No such step.", rests_on=(f"{made.sources[0]}/host#9",)),
            experiences.Lesson(says="Seen elsewhere.", rests_on=("another-run/a#1",)),
        ],
    )
    assert (changed.lessons, changed.dropped) == ((kept,), 3)
    assert "Close the popup first." in experiences.files(changed)["SKILL.md"].decode()


def test_a_date_may_stand_in_another_form_than_in_the_task():
    """The page takes another form: its slot is filled in from the task's."""
    doings = [
        Demonstration(
            task=f"Enter {date} as the date.",
            actions=(shown(NAME, "fill", iso_date), shown(SEND)),
            success=True,
            source=date,
        )
        for date, iso_date in (("03/09/2017", "2017-03-09"), ("12/31/1999", "1999-12-31"))
    ]
    [distilled] = distil.distilled(doings)
    made = experiences.made("enter-a-date", distilled)
    assert made.procedure.slots == ("enter", "enter_iso_date")
    guard = checking.Guard(made.procedure, (), made.params("Enter 02/29/2024 as the date.") or {})
    assert guard.actions["n1"].arguments == ["2024-02-29"]
    assert experiences.parameters_schema(made)["required"] == ["enter"]
    with pytest.raises(BadValue, match="no value for enter_iso_date"):
        checking.Guard(made.procedure, (), {"enter": "tomorrow"})


def call(tool: str, **given: object) -> ShownAction:
    """Return a tool call, as a run has it."""
    action = CachedAction(
        step_index=0,
        instruction=None,
        element_id=None,
        method=tool,
        arguments=[msgspec.json.encode(given).decode()],
        frame_index=None,
        xpath=None,
        action_type="tool",
        success=True,
        message="done",
        effects="once",
        action_params=dict(given),
    )
    return ShownAction(action=action)


def booking(city: str, seats: int, passport: str) -> Demonstration:
    """Return a demonstration that books a journey by tools."""
    return Demonstration(
        task=f'Book a journey to "{city}".',
        actions=(
            call("search", to=city, way="train"),
            call("search", to=city, way="ship"),
            call("book", to=city, seats=seats, passport=passport),
        ),
        success=True,
        source=f"run-{city}",
    )


def test_calls_of_tools_are_learned_with_slots_for_their_arguments():
    """Common values stay, the task's are its slots, other differences slots of their own."""
    [distilled] = distil.distilled([booking("Ulm", 2, "A1"), booking("Bern", 3, "B2")])
    made = experiences.made("book-a-journey", distilled)
    city, seats, passport = "{{journey}}", "{{book_seats}}", "{{book_passport}}"
    assert [(each.action.method, each.action.action_params) for each in made.procedure.nodes] == [
        ("search", {"to": city, "way": "train"}),
        ("search", {"to": city, "way": "ship"}),
        ("book", {"to": city, "seats": {"$json": seats}, "passport": passport}),
    ]
    assert made.procedure.slots == ("journey", "book_seats", "book_passport")
    raw = b"".join(experiences.files(made).values())
    assert b"A1" not in raw
    assert b"B2" not in raw
    assert experiences.read(experiences.files(made)) == made


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="no ../shared/data/browser/demos here")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("login-user", ["fill {{username}} username", "fill {{password}} password", "click Login"]),
        ("click-button-sequence", ["click ONE", "click TWO"]),
    ],
)
def test_what_people_showed_is_the_graph_that_one_expects(task, expected):
    """The graph has the needed actions of 32 people, without their detours."""
    [distilled] = distil.distilled(demonstrations(task))
    assert distilled.procedure is not None
    assert [distil.action_words(each.action) for each in distilled.procedure.nodes] == expected
    assert len(distilled.sources) == 32


def test_actions_on_several_pages_of_a_host_are_held_to_that_host():
    """Pages that differ in their query alone take the check of the host away no more."""
    pages = [PageMark(address=f"https://guests.example/f?{n}", digest=n) for n in ("a", "b")]

    def at(each: Demonstration, page: PageMark) -> Demonstration:
        actions = tuple(
            msgspec.structs.replace(s, action=msgspec.structs.replace(s.action, page=page))
            for s in each.actions
        )
        return msgspec.structs.replace(each, actions=actions)

    [distilled] = distil.distilled([at(each, pages[n % 2]) for n, each in enumerate(EIGHT)])
    made = experiences.made("invite", distilled).confirmed()
    [place] = [each for each in made.checks if isinstance(each, checking.InvariantCheck)]
    assert (place.name, place.hosts) == ("at guests.example", ("guests.example",))


# ------------------------------------------------------------ an airline agent


FILE = Path(__file__).parents[2].parent / "shared/data/tau-bench/dev/gpt-4o-airline.json"


@pytest.mark.slow
@pytest.mark.skipif(not FILE.exists(), reason="no ../shared/data/tau-bench here")
def test_a_procedure_of_tools_foretells_more_than_the_most_frequent():
    """A learned procedure predicts unseen runs better than the most frequent action."""
    every = airline.runs(json.loads(FILE.read_text()))
    assert (len(every), sum(each.success for each in every)) == (200, 84)
    results = airline.compared(every)
    tool, argument = "next tool, {}", "argument, {}"
    for what in (tool, argument):
        learned, most = (
            results[what.format(by)] for by in ("by the procedure", "the most frequent")
        )
        assert learned.of == most.of
        assert learned.share > most.share
        assert learned.low <= learned.share <= learned.high
    failed = results["flow check flags, of runs that failed"]
    succeeded = results["flow check flags, of runs that succeeded"]
    assert failed.of + succeeded.of == 100
    assert failed.share > succeeded.share
