"""The cooperation of a run's agents: tasks, and messages between them.

Pure: it imports only the rest of the domain. It defines events and state of tasks (`task`), their
decisions and dependencies (`task_rules`), the tasks that a restricted role may see
(`task_visibility`), and messages (`mail`).
"""
