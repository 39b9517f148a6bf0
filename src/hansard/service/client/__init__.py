"""The client of a restricted agent: the same API, over the service. Made by `hansard.connect`."""
