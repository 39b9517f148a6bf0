"""The eventsourcing library on the record: `native`, its recorders over a workspace's log, and
`log`, a log over any of its recorders.

Uses the log's port and the library, which nothing else imports.
"""
