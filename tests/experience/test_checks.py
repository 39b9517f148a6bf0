"""Check functions stop wrong actions before their effect, and no right ones."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest

from hansard.domain.actions import ElementTargets
from hansard.domain.errors import BadValue
from hansard.domain.experience import checks as checking
from hansard.domain.experience import distil
from hansard.domain.experience.checks import END, CheckFailure, Guard, Situation, other_than
from hansard.domain.experience.distil import Demonstration, ShownAction
from hansard.domain.experience.experience import Experience
from tests.actions.test_cache import entry
from tests.experience.test_learning import CLOSE, EIGHT, NAME, SEND, learned

URL = "https://guests.example/form"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """An action that somebody proposes: a replay, a student, a person.

    Attributes:
        method: What is done.
        arguments: Texts.
        element: What the element is called.
        frame: In which frame.
    """

    method: str
    arguments: tuple[str, ...]
    element: ElementTargets
    frame: int = 0


def node_of(guard: Guard, move: Move) -> str | None:
    """Return the node of a proposed action, or None if it may not come next."""
    for name in guard.walk.candidates(guard.procedure):
        action = guard.actions.get(name)
        if (
            action is not None
            and (action.method, tuple(action.arguments)) == (move.method, move.arguments)
            and (action.frame_index or 0) == move.frame
            and not other_than(action.targets, move.element)
        ):
            return name
    return None


class Try(msgspec.Struct, frozen=True):
    """An intended action and the known state of the page."""

    move: Move
    situation: Situation


def honest(experience: Experience, dice: random.Random) -> list[Try]:
    """Return the attempts of an unchanged demonstration."""
    name = dice.choice(["Ada", "Barbara", "Zoe"])
    moves = [Move(method="fill", arguments=(name,), element=NAME)]
    if dice.random() < 0.5:
        moves.insert(0, Move(method="click", arguments=(), element=CLOSE))
    moves.append(Move(method="click", arguments=(), element=SEND))
    return [
        Try(move, Situation(url=URL, done=at, matches=1, element=move.element))
        for at, move in enumerate(moves)
    ]


def effects(experience: Experience, name: str, tries: list[Try]) -> tuple[int, CheckFailure | None]:
    """Return how many actions a guard lets pass, and the check that stops the rest."""
    guard = Guard(experience.procedure, experience.checks, {"invite": name})
    for done, each in enumerate(tries):
        node = node_of(guard, each.move)
        if node is None:
            why = "it is none of what may come next"
            return done, CheckFailure(check="flow", kind="flow", why=why)
        failed = guard.before(node, each.situation)
        if failed is not None:
            return done, failed
        guard.after(node, msgspec.structs.replace(each.situation, value=None))
    return len(tries), guard.complete()


def other_element(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Do one action to another element of the page."""
    wrong = ElementTargets(role="button", tag="button", name="Delete", text="Delete")
    move = msgspec.structs.replace(tries[at].move, element=wrong)
    return [*tries[:at], _on(tries[at], move), *tries[at + 1 :]]


def other_argument(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Fill in another value."""
    at = next(i for i, each in enumerate(tries) if each.move.method == "fill")
    move = msgspec.structs.replace(tries[at].move, arguments=(f"Eve{dice.random()}",))
    return [*tries[:at], _on(tries[at], move), *tries[at + 1 :]]


def skipped(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Leave out the name."""
    return _numbered([each for each in tries if each.move.method != "fill"])


def added(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Repeat the sending."""
    return _numbered([*tries, tries[-1]])


def swapped(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Send before the name is filled in."""
    return _numbered([*tries[:-2], tries[-1], tries[-2]])


def other_host(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Move the page to another host from one action on."""
    url = dice.choice(["https://evil.example/form", "https://guests.example.evil.example/", "x:"])
    return [*tries[:at], *(_at(each, url=url) for each in tries[at:])]


def other_frame(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Do an action in another frame."""
    return [*tries[:at], _at(tries[at], frame=1), *tries[at + 1 :]]


def stale(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Use the state of the page from before the previous action."""
    at = max(1, at)
    return [*tries[:at], _at(tries[at], done=at - 1), *tries[at + 1 :]]


def twice_there(tries: list[Try], dice: random.Random, at: int) -> list[Try]:
    """Have two elements match."""
    return [*tries[:at], _at(tries[at], matches=2), *tries[at + 1 :]]


Mutation = Callable[[list[Try], random.Random, int], list[Try]]
MUTATIONS: tuple[Mutation, ...] = (
    other_element, other_argument, skipped, added, swapped, other_host, other_frame, stale,
    twice_there,
)  # fmt: skip


def _on(attempt: Try, move: Move) -> Try:
    situation = msgspec.structs.replace(attempt.situation, element=move.element)
    return Try(move, situation)


def _at(attempt: Try, **changes: object) -> Try:
    return Try(attempt.move, msgspec.structs.replace(attempt.situation, **changes))


def _numbered(tries: list[Try]) -> list[Try]:
    return [_at(each, done=at) for at, each in enumerate(tries)]


def rounds(count: int) -> Iterator[tuple[random.Random, list[Try], str]]:
    """Honest doings, each with the dice that drew it, and the name that is filled in."""
    experience = learned(*EIGHT)
    for seed in range(count):
        dice = random.Random(seed)
        tries = honest(experience, dice)
        yield dice, tries, next(e.move.arguments[0] for e in tries if e.move.method == "fill")


def test_no_honest_doing_is_stopped():
    """None of 1,000 honest attempts is stopped."""
    experience = learned(*EIGHT)
    for _, tries, name in rounds(1_000):
        assert effects(experience, name, tries) == (len(tries), None)


def test_mutated_doings_are_stopped_before_the_effect():
    """1,000 mutations of nine kinds are stopped before their changed action."""
    experience = learned(*EIGHT)
    stopped: Counter[str] = Counter()
    for number, (dice, tries, name) in enumerate(rounds(1_000)):
        mutation = MUTATIONS[number % len(MUTATIONS)]
        changed = mutation(tries, dice, dice.randrange(len(tries)))
        assert changed != tries
        done, failed = effects(experience, name, changed)
        honest_until = next(
            (
                at
                for at, (one, other) in enumerate(zip(tries, changed, strict=False))
                if one != other
            ),
            min(len(tries), len(changed)),
        )
        assert failed is not None, (mutation.__name__, changed)
        assert done <= honest_until, (mutation.__name__, failed)
        stopped[failed.kind] += 1
    assert set(stopped) == {"flow", "precondition", "invariant"}


def test_a_doing_may_not_end_before_its_end():
    """An action of every demonstration is required before the end."""
    experience = learned(*EIGHT)
    guard = Guard(experience.procedure, experience.checks, {"invite": "Ada"})
    fill = next(n.name for n in experience.procedure.nodes if n.action.method == "fill")
    guard.after(fill, Situation(url=URL, done=1))
    failed = guard.complete()
    assert failed is not None
    assert (failed.kind, failed.why) == ("complete", f"end does not follow {fill}")
    assert END not in experience.procedure.after(fill)


def test_what_a_field_holds_is_read_after_it_was_filled_in():
    """A field's value is compared after it was filled in, and not shown."""
    experience = learned(*EIGHT)
    guard = Guard(experience.procedure, experience.checks, {"invite": "Ada"})
    fill = next(n.name for n in experience.procedure.nodes if n.action.method == "fill")
    failed = guard.after(fill, Situation(url=URL, done=1, value="Eve"))
    assert failed is not None
    assert failed.kind == "postcondition"
    assert failed.why == "the field does not hold what was filled in"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/srv/in/a.txt", True),
        ("/srv/in", True),
        ("/srv/in/deep/../a.txt", True),
        ("/srv/in/../out/a.txt", False),
        ("/srv/inside", False),
        ("srv/in/a.txt", False),
        ("/srv/in/a\0.txt", False),
        ("own/a.txt", True),
        ("own/../../a.txt", False),
    ],
)
def test_an_argument_may_have_to_be_a_path_in_a_folder(path, allowed):
    """A path check resolves `..`, compares whole names, and refuses other texts."""
    experience = learned(*EIGHT)
    move = Move(method="fill", arguments=(path,), element=NAME)
    plain = Guard(experience.procedure, experience.checks, {"invite": path})
    node = node_of(plain, move) or ""
    folders = ("/srv/in/", "./own")
    within = checking.ArgumentCheck(name="in", node=node, path_under=folders)
    guard = Guard(experience.procedure, [*experience.checks, within], {"invite": path})
    failed = guard.before(node, Situation(url=URL, done=0, matches=1, element=NAME))
    assert (failed is None) is allowed
    assert failed is None or (failed.check, failed.why) == (
        "in",
        "it is no path in /srv/in/, ./own",
    )


def test_a_check_that_names_nothing_is_refused():
    """A check of an unknown node, a duplicate name and a missing value are refused."""
    experience = learned(*EIGHT)
    lost = checking.PreconditionCheck(name="lost", node="n99")
    with pytest.raises(BadValue, match="which is no node"):
        checking.checked([*experience.checks, lost], experience.procedure)
    with pytest.raises(BadValue, match="two checks are called 'flow'"):
        checking.checked(
            [*experience.checks, checking.FlowCheck(name="flow")], experience.procedure
        )
    with pytest.raises(BadValue, match="no value for invite"):
        Guard(experience.procedure, experience.checks, {})


def test_a_task_whose_value_changes_no_action_is_refused():
    """A task whose value changes no action is refused, since no element depends on it."""
    shown = [
        Demonstration(
            task=f"Focus the {which} field.",
            actions=(
                ShownAction(
                    action=entry(method="click", arguments=[], targets=ElementTargets(id="t1"))
                ),
            ),
            success=True,
            source=which,
        )
        for which in ("first", "second")
    ]
    [distilled] = distil.distilled(shown)
    assert distilled.procedure is not None
    with pytest.raises(BadValue, match="its value is in no argument"):
        Guard(
            distilled.procedure,
            checking.proposed(distilled.procedure),
            {distilled.wording.slots[0]: "third"},
        )
