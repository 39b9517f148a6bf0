"""The bus: the log, its codec and its adapters. The log is the only source of truth."""
