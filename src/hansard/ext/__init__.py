"""Features as slices on the public core, which the core does not import.

Commands and the service import a slice where they need it.
"""
