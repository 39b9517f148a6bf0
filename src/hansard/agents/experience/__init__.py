"""Experiences as folders on disk.

It may touch `hansard.domain.experience` and files. It gives `read_folder`, `write_folder` and
`confirm`.
"""
