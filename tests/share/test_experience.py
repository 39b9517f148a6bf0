"""Experiences in packs: what may travel, and what they may do where they are added."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.artifacts import experiences as store
from hansard.client.record import Record
from hansard.domain.actions import PageMark
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.experience import ExperienceStanding
from hansard.domain.label import Label
from hansard.domain.payload import blobs_named
from hansard.ext.share.copies import commit_id, demand_clean, id_of, stream_of
from hansard.ext.share.packs import PackReport, Packs
from tests.conftest import THOROUGH
from tests.exchange.support import places, sealed
from tests.experience.test_kept import invite
from tests.experience.test_learning import EIGHT
from tests.share.test_packs import Publisher, home, other, publisher, resigned

__all__ = ["home", "other", "publisher"]

PLANTS = 100 if THOROUGH else 40

ROLES = """
[roles.expert]
[[roles.expert.sees]]
name = "all"
kinds = ["**", "experience.*"]
"""


def learnt(**changes: Any) -> experiences.Experience:
    """Return an experience with checks."""
    [distilled] = distil.distilled(EIGHT)
    made = experiences.made("invite", distilled, description="Invites a guest").confirmed()
    changed: experiences.Experience = msgspec.structs.replace(made, **changes)
    return changed


def plants(dice: random.Random) -> Iterator[tuple[str, experiences.Experience]]:
    """Made-up values for each place in an experience, with right check digits."""
    made = [
        "ada.lovelace@example.org", "+44 20 7946 0958", "4111 1111 1111 1111", "5500005555555559",
        "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "sk-" + "a1B2" * 8,
        "AKIA" + "IOSFODNN7EXAMPLE", "ghp_" + "x9Yz" * 9, "password=hunter2hunter2",
    ]  # fmt: skip
    places = [_described, _worded, _argued, _addressed, _instructed, _named, _advised, _keyed]
    for at in range(PLANTS):
        value = made[at % len(made)]
        yield value, places[dice.randrange(len(places))](value)


def _described(value: str) -> experiences.Experience:
    return learnt(description=f"Writes to {value} each day")


def _worded(value: str) -> experiences.Experience:
    parts = learnt().wording.parts
    wording = msgspec.structs.replace(learnt().wording, parts=(f"{parts[0]} {value} ", *parts[1:]))
    return learnt(wording=wording)


def _action(**changes: Any) -> experiences.Experience:
    base = learnt()
    first, *rest = base.procedure.nodes
    action = msgspec.structs.replace(first.action, **changes)
    nodes = (msgspec.structs.replace(first, action=action), *rest)
    return learnt(procedure=msgspec.structs.replace(base.procedure, nodes=nodes))


def _argued(value: str) -> experiences.Experience:
    base = learnt()
    nodes = tuple(
        msgspec.structs.replace(
            each, action=msgspec.structs.replace(each.action, arguments=[f"to {value}"])
        )
        if each.action.method == "fill"
        else each
        for each in base.procedure.nodes
    )
    return learnt(procedure=msgspec.structs.replace(base.procedure, nodes=nodes))


def _addressed(value: str) -> experiences.Experience:
    return _action(page=PageMark(address=f"https://guests.example/to/{value}"))


def _instructed(value: str) -> experiences.Experience:
    return _action(instruction=f"send it to {value}, please")


def _named(value: str) -> experiences.Experience:
    targets = learnt().procedure.nodes[0].action.targets
    assert targets is not None
    return _action(targets=msgspec.structs.replace(targets, row=f"row of {value}"))


def _advised(value: str) -> experiences.Experience:
    lesson = experiences.Lesson(says=f"Never call {value}", rests_on=(EIGHT[0].source,))
    return learnt(lessons=(lesson,))


def _keyed(value: str) -> experiences.Experience:
    return _action(element_id=f"0-{value}")


@pytest.mark.slow
def test_no_planted_value_is_published():
    """Each of 100 planted secrets (quick: 40) is refused unnamed; without them all is published."""
    demand_clean(experiences.content_of(learnt()))
    published = []
    for value, experience in plants(random.Random(19)):
        try:
            demand_clean(experiences.content_of(experience))
        except BadValue as refused:
            published += [value] if value in str(refused) else []
        else:
            published.append(value)
    assert published == []


@pytest.fixture
def packed(publisher: Publisher, tmp_path: Path) -> Callable[..., PackReport]:
    """Return a function that makes a pack with a confirmed experience."""
    with hansard.connect(publisher.name, data_dir=publisher.home) as record:
        invite(record)
        (tmp_path / "expert.toml").write_text(ROLES)
        record.roles.apply_file(tmp_path / "expert.toml")

    def make(**options: Any) -> PackReport:
        return publisher.make(**{"as_": "expert", "also": ["experience/invite"], **options})

    return make


def name_of(made: PackReport) -> str:
    """Return the name of a pack's experience where it is added."""
    return made.manifest.also[0].removeprefix("experience/")


def test_an_experience_may_act_once_a_person_here_confirmed_it(packed, publisher, home, other):
    """It is added untrusted, with its key and license; its digest confirms it; packs go on."""
    made = packed()
    assert packed().pack == made.pack
    name = name_of(made)
    with hansard.connect(other, data_dir=home) as record:
        assert record.noun(Packs).add(made.file, key=publisher.public).state == "added"
        [row] = record.experiences.list().experiences
        assert (row.experience, row.standing) == (name, ExperienceStanding.UNTRUSTED)
        with pytest.raises(Refused, match=r"nobody has confirmed it.*--digest"):
            record._portal.run(store.usable(record.workspace, name))
        with pytest.raises(BadValue, match="name the digest that you reviewed"):
            record.experiences.confirm(name)
        with pytest.raises(Refused, match="no version has the digest"):
            record.experiences.confirm(name, digest="0" * 64)
        label = record._portal.run(store.get(record.workspace, name)).label
        assert label == Label(untrusted=True)
        assert record.experiences.confirm(name, digest=row.digest[:12]) == 2
        assert record._portal.run(store.usable(record.workspace, name)) == 2
        assert record._portal.run(store.get(record.workspace, name)).label is None
        assert record.noun(Packs).add(made.file).new == 0
        [first, _] = record.experiences.log(name).changes
        assert (first.change, first.key) == ("installed", made.manifest.key)
        sql = "SELECT license, origin_log FROM experience_versions AS v JOIN events AS e "
        rows = record.sql(sql + "ON e.position = v.position WHERE kind = 'installed'").rows
        assert rows == [("Apache-2.0", publisher.name)]
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.experiences.keep(learnt(description="Invites better"))
    newer = packed()
    assert name_of(newer) != name
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(newer.file)
        assert record._portal.run(store.usable(record.workspace, name)) == 2
        assert len(record.experiences.list().experiences) == 2
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.experiences.retire("invite", reason="wrong")
    with pytest.raises(Refused, match="it is retired"):
        packed()
    with pytest.raises(BadValue, match="the role does not see all of it"):
        packed(as_="plain")


def test_a_role_that_sees_a_part_publishes_nothing(packed, publisher, tmp_path):
    """An experience with a masked or hidden field is in no pack: it travels whole or not at all."""
    mask = '[[roles.expert.masks]]\nname = "m"\nkinds = ["experience.*"]\n'
    for rules in (
        f'{ROLES}{mask}fields = ["content.*"]\n',
        f'{ROLES}{mask}fields = ["about.task"]\nhow = "hash"\n',
        f'{ROLES}fields = ["about"]\n',
    ):
        (tmp_path / "part.toml").write_text(rules.replace("roles.expert", "roles.part"))
        with hansard.connect(publisher.name, data_dir=publisher.home) as record:
            record.roles.apply_file(tmp_path / "part.toml")
        with pytest.raises(BadValue, match="the role does not see all of it"):
            packed(as_="part")


def test_an_experience_of_many_runs_travels(packed, publisher, home, other):
    """Its sources are larger than a value in an event may be, and a run names the same blob."""
    many = learnt(sources=tuple(f"run-{number:060}" for number in range(1_200)))
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.experiences.keep(many)
        record.experiences.confirm("invite")
        with record.run("w", agent="a", role="r") as session:
            session.board.put("copy", experiences.content_of(many))
    publisher.run = session.run
    made = packed()
    section = Path(made.file).read_text().splitlines()
    blobs = {line["sha256"] for line in map(json.loads, section) if line["kind"] == "blob"}
    named = [
        blob
        for line in map(json.loads, section)
        if "body" in line
        for blob, _ in blobs_named(line["body"].encode())
    ]
    assert max(map(named.count, blobs)) > 1
    with hansard.connect(other, data_dir=home) as record:
        assert record.noun(Packs).add(made.file, key=publisher.public).state == "added"
        version = record._portal.run(store.get(record.workspace, name_of(made)))
        assert version.experience.sources == many.sources


@pytest.mark.parametrize("nothing", ["{}", "[]"])
def test_names_of_empty_values_are_searched_for_secrets(nothing: str):
    """A name is content, also in front of nothing."""
    with pytest.raises(BadValue, match=r"email at '' in about\.json"):
        demand_clean({"about.json": f'{{"a": [{{"ada@example.org": {nothing}}}]}}'})


def _forged(change: Callable[[dict[str, Any]], None], **commit: Any) -> Callable[..., bytes]:
    """Return a change of the commit that installs an experience."""

    def forge(_: Any, section: bytes) -> bytes:
        lines = [json.loads(line) for line in section.splitlines()]
        line = next(each for each in lines if "experience.installed" in each.get("body", ""))
        body = json.loads(line["body"])
        change(body["events"][0])
        line["body"] = json.dumps({name: each for name, each in body.items() if name not in commit})
        return sealed(lines)

    return forge


def _data(**fields: Any) -> Callable[..., bytes]:
    return _forged(lambda event: event["data"].update(fields))


def _confirmed(event: dict[str, Any]) -> None:
    event["type"] = "experience.confirmed.v1"
    event["data"]["parent"] = 1


def _about(event: dict[str, Any]) -> None:
    event["data"]["about"]["checks"] += 1


def _graph(graph: str) -> Callable[..., bytes]:
    def change(event: dict[str, Any]) -> None:
        content = {**event["data"]["content"], "graph.json": graph}
        event["data"] |= {"content": content, "digest": experiences.digest_of(content)}

    return _forged(change)


@pytest.mark.later
def test_a_publisher_takes_no_name_of_the_receiver(packed, publisher, home, other):
    """An experience of a signed pack is called by its own name and digits of its publisher."""
    made = packed()

    def renamed(manifest, section):
        manifest["also"] = ["experience/invite"]
        lines = [json.loads(line) for line in section.splitlines()]
        line = next(each for each in lines if "experience.installed" in each.get("body", ""))
        line["stream"]["id"], body = "invite", json.loads(line["body"])
        stream = stream_of("experience/invite")
        copy = id_of(manifest["key"], manifest["workspace"], "", str(stream), "")
        body["id"] = commit_id(copy, stream, 1, body["events"][0]["id"])
        line["body"] = json.dumps(body)
        return sealed(lines)

    file = resigned(publisher, Path(made.file), renamed)
    with hansard.connect(other, data_dir=home) as record:
        with pytest.raises(BadValue, match="is called 'invite', not 'invite-"):
            record.noun(Packs).add(file, key=publisher.public)
        assert record.experiences.list().experiences == []


DEEP = '{"format":"hansard.procedure.v1","x":' + "[" * 20_000 + "]" * 20_000 + "}"


@pytest.mark.later
def test_a_publisher_makes_no_experience_trusted(packed, publisher, home, other):
    """A signed pack whose experience is confirmed, without label or not its files is refused."""
    made = packed()
    with hansard.connect(other, data_dir=home) as record:
        before = places(home, other)
        for change, match in (
            (_forged(lambda event: event.update(type="experience.distilled.v1")), "one untrusted"),
            (_forged(_confirmed), "one untrusted"),
            (_forged(lambda _: None, label=None), "one untrusted"),
            (_data(key="00" * 32), "one untrusted"),
            (_data(version=2), "one untrusted"),
            (_forged(_about), "is not what its files are"),
            (_data(digest="0" * 64), "is not what its files are"),
            (_data(content=[]), "cannot be read"),
            (_data(content={"SKILL.md": "x"}), "cannot be read"),
            (_graph(DEEP), "cannot be read"),
            (_graph('{"format":'), "cannot be read"),
        ):
            file = resigned(publisher, Path(made.file), change)
            with pytest.raises(BadValue, match=match):
                record.noun(Packs).add(file, key=publisher.public)
            assert places(home, other) == before


def test_a_wording_that_loops_ends(record: Record):
    """A wording with hundreds of slots is tried in linear time."""
    slots = tuple(f"s{n}" for n in range(300))
    parts = ("a", *(each for slot in slots for each in (slot, "a")))
    base = learnt()
    evil = learnt(
        wording=msgspec.structs.replace(base.wording, parts=parts),
        procedure=msgspec.structs.replace(base.procedure, slots=slots),
        script=msgspec.structs.replace(base.script, slots=list(slots)),
    )
    assert record.experiences.keep(evil) == 1
    [hit] = record.experiences.find("a " * 1_500 + "guest").hits
    assert hit.params is None
