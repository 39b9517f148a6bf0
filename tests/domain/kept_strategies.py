"""Histories of versions kept by name, and of reusable answers."""

import hashlib
from typing import Any

import msgspec
from hypothesis import strategies as st

from hansard.domain import actions, decider, reuse
from hansard.domain.actions import CachedAction
from hansard.domain.experience import experience
from hansard.domain.experience.experience import ExperienceAbout
from tests.domain.strategies import happened

_NUMBERS = st.integers(1, 4)
_ABOUTS = st.builds(
    lambda checks: ExperienceAbout(description="d", task="t", level=3, checks=checks),
    st.integers(0, 2),
)
_CONTENTS = st.sampled_from("abc").map(
    lambda text: {
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "content": msgspec.Raw(msgspec.json.encode({"SKILL.md": text})),
    }
)
_BUNDLES = st.sampled_from(["b1", "b2"])


def _action(entry: int, xpath: str) -> CachedAction:
    return CachedAction(
        step_index=entry,
        instruction=None,
        element_id=None,
        method="click",
        arguments=[],
        frame_index=0,
        xpath=xpath,
        action_type="act",
        success=True,
        message="",
    )


action_commands = st.one_of(
    st.sampled_from("abc").map(
        lambda text: actions.ActionsSaved(
            version=0, cache=msgspec.Raw(msgspec.json.encode(text)), digest=text
        )
    ),
    st.builds(
        lambda before, entry, xpath: actions.ActionsHealed(
            version=0, before=before, entry=entry, after=_action(entry, xpath)
        ),
        _NUMBERS,
        st.integers(0, 1),
        st.sampled_from(["/a", "/b"]),
    ),
    st.builds(actions.ActionsReverted, version=st.just(0), to=_NUMBERS),
    st.builds(actions.ActionsLookedAt, version=_NUMBERS),
)
action_histories = st.lists(action_commands, max_size=12).map(
    lambda commands: happened(commands, actions.initial(), actions.fold, actions.decide)
)

experience_commands = st.one_of(
    st.builds(
        lambda content, about: experience.ExperienceDistilled(version=0, about=about, **content),
        _CONTENTS,
        _ABOUTS,
    ),
    st.builds(
        lambda content, about, parent: experience.ExperienceConfirmed(
            version=0, about=about, parent=parent, **content
        ),
        _CONTENTS,
        _ABOUTS,
        _NUMBERS,
    ),
    st.builds(
        lambda content, about, parent: experience.ExperienceHealed(
            version=0, about=about, parent=parent, node="n1", **content
        ),
        _CONTENTS,
        _ABOUTS,
        _NUMBERS,
    ),
    st.builds(
        lambda content, about, bundle, key: experience.ExperienceInstalled(
            version=0, about=about, bundle=bundle, key=key, **content
        ),
        _CONTENTS,
        _ABOUTS,
        _BUNDLES,
        st.sampled_from(["", "k"]),
    ),
    st.builds(
        experience.ExperienceReplayed,
        version=_NUMBERS,
        run=st.sampled_from(["r1", "r2"]),
        agent=st.just("a"),
        step=st.integers(1, 3),
        success=st.booleans(),
        checks=st.just(1),
    ),
    st.builds(experience.ExperiencePublished, version=_NUMBERS, bundle=_BUNDLES),
    st.just(experience.ExperienceRetired(version=0)),
)


def _experienced(state: Any, event: Any) -> Any:
    """Return the events of a command, also of those that no decision makes."""
    if isinstance(event, experience.ExperienceInstalled):
        number = state.newest + 1
        return [msgspec.structs.replace(event, version=number, parent=state.newest)]
    if isinstance(event, experience.ExperiencePublished):
        return [event] if event.version in state.versions else []
    return experience.decide(state, event)


experience_histories = st.lists(experience_commands, max_size=12).map(
    lambda commands: happened(commands, experience.initial(), experience.fold, _experienced)
)

stale_commands = st.builds(
    lambda kind, name: reuse.AnswersInvalidated(**{kind: name}),
    st.sampled_from(["tool", "run", "key"]),
    st.sampled_from(["n1", "n2"]),
)
stale_histories = st.lists(stale_commands, max_size=8).map(
    lambda commands: happened(
        commands, reuse.Stale(), decider.fold, lambda _, event: reuse.decide(event)
    )
)
