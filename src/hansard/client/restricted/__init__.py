"""The client of a restricted agent: the same API, over the service. Made by `hansard.connect`.

Touches one connection to the service, and nothing else of the broker.
Gives the record (`record`), the session (`session`) and their connection (`link`).
"""
