"""What the agents of a run do together: tasks, and messages between them.

Touches nothing but the rest of the domain: pure.
Gives events, state and decisions of tasks (`task`, `task_rules`), what each still waits for
(`task_waits`), what a restricted role may know (`task_sight`), and messages (`mail`).
"""
