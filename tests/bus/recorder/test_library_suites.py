"""The eventsourcing library's own test classes, unmodified, over a real nats-server."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import TestCase
from unittest.mock import patch
from uuid import uuid4

import pytest
from eventsourcing.tests import application
from eventsourcing.tests import persistence as theirs
from eventsourcing.utils import Environment

from hansard.bus.recorder import (
    Factory,
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamFactory,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)
from hansard.bus.server.lease import Lease, join

pytestmark = pytest.mark.later

MODULE = "hansard.bus.recorder"


class OnOneBroker(TestCase):
    """A broker for the module, and a factory of its own, under a name of its own, for each test."""

    lease: Lease
    folder: TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        """Start the embedded broker."""
        super().setUpClass()
        cls.folder = TemporaryDirectory()
        cls.lease = join(Path(cls.folder.name))
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.lease.close)

    def setUp(self) -> None:
        """Name the broker."""
        self.env = Environment(f"T{uuid4().hex}", self.variables())
        self._made: list[JetStreamFactory] = []
        self.addCleanup(self._close)
        super().setUp()

    @classmethod
    def variables(cls) -> dict[str, str]:
        """What names the broker."""
        return {"PERSISTENCE_MODULE": MODULE, "HANSARD_DATA_DIR": cls.folder.name}

    def made(self) -> JetStreamFactory:
        """A factory that is closed after the test."""
        factory = Factory.construct(self.env)
        self._made.append(factory)
        return factory

    def _close(self) -> None:
        for factory in self._made:
            factory.close()


class TestAggregateRecorder(OnOneBroker, theirs.AggregateRecorderTestCase):
    def create_recorder(self):
        """One recorder a test."""
        return self.made().aggregate_recorder()


class TestSnapshotRecorder(OnOneBroker, theirs.AggregateRecorderTestCase):
    def create_recorder(self):
        """The same under the purpose that applications ask for."""
        return self.made().aggregate_recorder(purpose="snapshots")


class TestApplicationRecorder(OnOneBroker, theirs.ApplicationRecorderTestCase):
    def create_recorder(self):
        """One recorder a test."""
        return self.made().application_recorder()

    test_insert_subscribe = theirs.ApplicationRecorderTestCase.optional_test_insert_subscribe


class TestNonInterleavingIDs(OnOneBroker, theirs.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self):
        """One recorder a test."""
        return self.made().application_recorder()


class TestTrackingRecorder(OnOneBroker, theirs.TrackingRecorderTestCase):
    def create_recorder(self):
        """One recorder a test."""
        return self.made().tracking_recorder()


class TestProcessRecorder(OnOneBroker, theirs.ProcessRecorderTestCase):
    def create_recorder(self):
        """One recorder a test."""
        return self.made().process_recorder()


class TrackingSubclass(JetStreamTrackingRecorder):
    """What an application may make of a tracking recorder."""


class TestInfrastructureFactory(
    OnOneBroker, theirs.InfrastructureFactoryTestCase[JetStreamFactory]
):
    def expected_factory_class(self):
        """What the module resolves to."""
        return JetStreamFactory

    def expected_aggregate_recorder_class(self):
        """Ours."""
        return JetStreamAggregateRecorder

    def expected_application_recorder_class(self):
        """Ours."""
        return JetStreamApplicationRecorder

    def expected_tracking_recorder_class(self):
        """Ours."""
        return JetStreamTrackingRecorder

    def tracking_recorder_subclass(self):
        """A subclass, handed over or named by its topic."""
        return TrackingSubclass

    def expected_process_recorder_class(self):
        """Ours."""
        return JetStreamProcessRecorder


class TestExampleApplication(OnOneBroker, application.ExampleApplicationTestCase):
    expected_factory_topic = "hansard.bus.recorder._factory:JetStreamFactory"

    def setUp(self) -> None:
        """The library's application reads the process's environment."""
        super().setUp()
        patched = patch.dict(os.environ, self.variables())
        patched.start()
        self.addCleanup(patched.stop)


@pytest.mark.parametrize("case", OnOneBroker.__subclasses__())
def test_the_library_s_tests_are_run_as_they_are(case):
    """Nothing of the library's test classes is overridden but what they ask to be given."""
    library_class = case.__mro__[2]
    overridden = {name for name in vars(case) if name.startswith("test")} & set(dir(library_class))
    assert library_class.__module__.startswith("eventsourcing.tests.")
    assert not overridden
