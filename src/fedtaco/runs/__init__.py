"""Runs: settings, records and results of a run, shared by the simulator and Flower."""
