"""fedtaco with a given engine."""

from __future__ import annotations

import sys
from pathlib import Path

from fedtaco.data import TensorSamples
from fedtaco.runs.config import Training
from fedtaco.experiment.training import assemble
from fedtaco.methods import FedAvg
from fedtaco.models import build_model

sys.path.insert(0, str(Path(__file__).parents[1]))
from work import LOCAL_LR, asked, report

case, engine = asked()
x, y = case.data()
whole = TensorSamples(x.flatten(0, 1), y.flatten())
clients = [whole.subset(range(start, start + case.samples)) for start in range(0, len(whole), case.samples)]
settings = Training(
    rounds=case.rounds + 1, local_steps=case.steps, batch_size=case.batch, local_lr=LOCAL_LR, engine=engine
)
model = build_model(case.name, case.shape, case.classes, seed=0)
simulator, choice = assemble(settings, FedAvg(), model, clients, None)
rounds = simulator.rounds(simulator.begin())
report(case, lambda: next(rounds) and None)
rounds.close()
