"""Agent2Agent: requests of a program to another agent, and requests that an agent receives.

Uses sessions, and only the public parts of the A2A SDK (`pip install 'hansard[a2a]'`). `client`
records the requests sent and their answers, `server` the requests received and their answers;
`messages` converts the protocol's messages to values of the record.
"""
