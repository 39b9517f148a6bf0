"""What the command line does, one module a subject. `hansard.cli` only reads the arguments."""
