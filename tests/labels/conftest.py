"""The broker and the record of the tests of roles."""

from tests.roles.conftest import call, data_dir, record, workspace

__all__ = ["call", "data_dir", "record", "workspace"]
