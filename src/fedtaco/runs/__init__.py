"""Runs: settings, records and results of a run, for the simulator and Flower alike."""
