"""Benchmarks: each `bench_*.py` answers one question and prints one line of JSON."""
