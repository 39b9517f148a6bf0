"""The service: it hosts the sessions of restricted agents, and the client that asks it."""
