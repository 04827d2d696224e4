"""Benchmarks: instructions, modelled cycles, flash and RAM of the real models and of single layers, counted in emulators.

`make bench` writes bench/results.json and docs/benchmarks.md again. Counts repeat exactly, so that the results are committed, and a test
compares later counts with them (tests/models/test_counts.py). Workspaces of all real models: bench/workspaces.json, docs/workspaces.md.
"""
