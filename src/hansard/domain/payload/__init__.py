"""What stands in recorded values for what is not in them: blobs, earlier values, lists that grew.

Touches nothing, as all of the domain: what is in a blob is asked for (`references.Fetch`).
Gives the references and how they are followed (`references`), values told in part by earlier ones
(`parts`), and an agent's events as they come by, in full (`line`).
"""
