"""The service: it hosts the sessions of restricted agents, and answers what they ask.

Touches requests over the broker, and sessions over the real log.
Gives the server, what runs it (`running`), and the operations that a client may have done.
"""
