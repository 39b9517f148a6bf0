"""What an agent states: messages, decisions, checkpoints, resources, hand-offs.

Touches the agent's own stream, each statement once, and the streams of conversations.
Gives the statements (`statements`), what a decision was made from (`inputs`), and the messages of a
conversation over several runs (`conversations`).
"""
