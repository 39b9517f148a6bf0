"""The service: hosts the sessions of restricted agents, and answers their requests.

Uses requests over the broker, and sessions on the real log. Contains the server, its composition
(`running`), and the operations of clients.
"""
