"""The eventsourcing library's own test classes, over the record and a real nats-server."""

import os
from pathlib import Path
from typing import ClassVar
from unittest import TestCase
from unittest.mock import patch
from uuid import uuid4

import pytest
from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.tests import application
from eventsourcing.tests import persistence as theirs
from eventsourcing.utils import Environment

from hansard.broker.lease import join
from hansard.ext.eventsourcing import Factory
from hansard.state.native import (
    NativeAggregateRecorder,
    NativeApplicationRecorder,
    NativeProcessRecorder,
    NativeTrackingRecorder,
)

pytestmark = pytest.mark.later

MODULE = "hansard.ext.eventsourcing"

LITERAL_IDS = {("TestApplicationRecorder", "test_insert_select")}
"""Tests of the library that assert the ids 1, 2 and 3: here an id is a position of the log, which
other events share. They are written again without the numbers."""


class OnOneBroker(TestCase):
    """An embedded broker for each class, a factory on a workspace of its own for each test."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
        """Start the embedded broker."""
        request.cls.folder = tmp_path_factory.mktemp("broker")
        lease = join(request.cls.folder)
        yield
        lease.close()

    def setUp(self) -> None:
        """Name the broker and the workspace."""
        self.env = Environment("", self.variables())
        self._made: list[Factory] = []
        self.addCleanup(self._close)
        super().setUp()

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return the environment of an application."""
        return {
            "PERSISTENCE_MODULE": MODULE,
            "UNDECLARED": "store",
            "HANSARD_DATA_DIR": str(cls.folder),
            "HANSARD_WORKSPACE": f"w{uuid4().hex}",
        }

    def made(self) -> Factory:
        """Return a factory that is closed after the test."""
        factory = Factory.construct(self.env)
        self._made.append(factory)
        return factory

    def _close(self) -> None:
        for factory in self._made:
            factory.close()


class TestAggregateRecorder(OnOneBroker, theirs.AggregateRecorderTestCase):
    def create_recorder(self):
        """Return one recorder per test."""
        return self.made().aggregate_recorder()


class TestSnapshotRecorder(OnOneBroker, theirs.AggregateRecorderTestCase):
    def create_recorder(self):
        """Return the same under the purpose that applications use."""
        return self.made().aggregate_recorder(purpose="snapshots")


class TestApplicationRecorder(OnOneBroker, theirs.ApplicationRecorderTestCase):
    EXPECT_CONTIGUOUS_NOTIFICATION_IDS = False

    def create_recorder(self):
        """Return one recorder per test."""
        return self.made().application_recorder()

    def test_insert_select(self) -> None:
        """Run the library's test with the ids that the inserts return."""
        recorder = self.create_recorder()
        assert recorder.select_notifications(start=None, limit=3) == []
        assert recorder.max_notification_id() is None
        one, other = uuid4(), uuid4()
        events = [
            StoredEvent(one, 1, "topic1", b"state1"),
            StoredEvent(one, 2, "topic2", b"state2"),
            StoredEvent(other, 1, "topic3", b"state3"),
        ]
        first, second = recorder.insert_events(events[:2])
        [third] = recorder.insert_events(events[2:])
        assert first < second < third
        with pytest.raises(IntegrityError):
            recorder.insert_events(events[2:])

        def ids(start: int | None, limit: int, **more: object) -> list[int]:
            return [each.id for each in recorder.select_notifications(start, limit, **more)]

        everything = recorder.select_notifications(None, 10)
        assert [(each.topic, each.state) for each in everything] == [
            (each.topic, each.state) for each in events
        ]
        assert ids(None, 10) == ids(first, 10) == [first, second, third]
        assert ids(None, 10, stop=second) == ids(first, 10, stop=second) == [first, second]
        assert ids(first, 10, inclusive_of_start=False) == [second, third]
        assert ids(first, 10, stop=second, inclusive_of_start=False) == [second]
        assert ids(third, 1, inclusive_of_start=False) == []
        assert ids(1, 3, topics=["topic1", "topic3"]) == [first, third]
        assert ids(None, 10, topics=["topic1"], stop=third) == [first]
        assert ids(None, 1) == [first]
        assert ids(second, 2) == [second, third]
        assert recorder.max_notification_id() == third

    test_insert_subscribe = theirs.ApplicationRecorderTestCase.optional_test_insert_subscribe


class TestNonInterleavingIDs(OnOneBroker, theirs.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self):
        """Return one recorder per test."""
        return self.made().application_recorder()


class TestTrackingRecorder(OnOneBroker, theirs.TrackingRecorderTestCase):
    def create_recorder(self):
        """Return one recorder per test."""
        return self.made().tracking_recorder()


class TestProcessRecorder(OnOneBroker, theirs.ProcessRecorderTestCase):
    def create_recorder(self):
        """Return one recorder per test."""
        return self.made().process_recorder()


class TrackingSubclass(NativeTrackingRecorder):
    """An application's own tracking recorder."""


class TestInfrastructureFactory(OnOneBroker, theirs.InfrastructureFactoryTestCase[Factory]):
    def expected_factory_class(self):
        """Return the class that the module resolves to."""
        return Factory

    def expected_aggregate_recorder_class(self):
        """Ours."""
        return NativeAggregateRecorder

    def expected_application_recorder_class(self):
        """Ours."""
        return NativeApplicationRecorder

    def expected_tracking_recorder_class(self):
        """Ours."""
        return NativeTrackingRecorder

    def tracking_recorder_subclass(self):
        """A subclass, handed over or named by its topic."""
        return TrackingSubclass

    def expected_process_recorder_class(self):
        """Ours."""
        return NativeProcessRecorder


class TestExampleApplication(OnOneBroker, application.ExampleApplicationTestCase):
    expected_factory_topic = f"{MODULE}:Factory"

    def setUp(self) -> None:
        """Set the process's environment, which the library's application reads."""
        super().setUp()
        patched = patch.dict(os.environ, self.variables())
        patched.start()
        self.addCleanup(patched.stop)


@pytest.mark.parametrize("case", OnOneBroker.__subclasses__())
def test_the_library_s_tests_are_run_as_they_are(case):
    """Only methods that assert literal ids are overridden in the library's test classes."""
    library_class = case.__mro__[2]
    overridden = {name for name in vars(case) if name.startswith("test")} & set(dir(library_class))
    assert library_class.__module__.startswith("eventsourcing.tests.")
    assert {(case.__name__, name) for name in overridden} <= LITERAL_IDS
