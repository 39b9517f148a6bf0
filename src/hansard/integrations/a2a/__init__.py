"""Agent to agent: what a program asks of another agent over A2A, and what one is asked.

It may touch sessions, and the A2A SDK (`pip install 'hansard[a2a]'`), of which public parts alone.
`client` records what is sent and what comes back, `server` what an agent is asked and answers;
`messages` are the protocol's messages as values of the record.
"""
