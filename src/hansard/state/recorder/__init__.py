"""The eventsourcing library on the record: `native`, its recorders over a workspace's log, `log`,
a log over any of its recorders, and `topics`, its names of classes.

May touch the log's port and the library, which nothing else imports.
"""
