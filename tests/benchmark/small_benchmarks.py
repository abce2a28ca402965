"""A benchmark that takes a second, and what its tests count."""

from fedtaco.experiment import Callback, RunOptions

FEDAVG = """
title = "FedAvg"
reference = "fedavg"
budget = 2
rates = [1, 4]
tuning_seeds = [10]
seeds = [0]

[methods.fedavg]

[[tasks]]
name = "digits even"
primary = true
dataset = "digits"
partition = "iid"
clients = 4
rounds = 2
local_steps = 3
local_lr = 0.05
"""
IN_THIS_PROCESS = RunOptions(workers=1)
RESUME = RunOptions(resume=True, workers=1)


class CountRuns(Callback):
    """Counts the runs that begin, and those that are skipped."""

    def __init__(self):
        self.begun, self.skipped = 0, 0

    def on_run_begin(self, run):
        self.begun += 1

    def on_run_skipped(self, run):
        self.skipped += 1
