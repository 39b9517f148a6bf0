"""References in recorded values: blobs, ranges of earlier values, extended lists.

Pure, as all of the domain: the content of blobs is requested from the caller (`references.Fetch`).
It defines the references and their resolution (`references`), values stored as ranges of earlier
ones (`parts`), and an agent's events in order, resolved (`line`).
"""
