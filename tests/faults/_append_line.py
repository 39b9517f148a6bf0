"""The world's side of an effect: append one line to a file and have it on disk. PATH LINE."""

import os
import sys

descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(descriptor, sys.argv[2].encode() + b"\n")
os.fsync(descriptor)
