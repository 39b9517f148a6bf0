"""Facts stated by an agent: messages, decisions, checkpoints, resources, hand-offs.

Writes to the agent's own stream, each statement once, and to the streams of conversations. Exports
the statements (`statements`), the inputs of decisions (`inputs`), and the messages of a
conversation across runs (`conversations`).
"""
