"""fedtaco: FedAvg on the engine that the command line names."""

import sys
from pathlib import Path

from fedtaco.data import TensorSamples
from fedtaco.methods import FedAvg
from fedtaco.models import build_model

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import LOCAL_LR, parse_arguments, time_rounds
from simulators import build_simulator

case, engine = parse_arguments()
x, y = case.data()
samples = TensorSamples(x.flatten(0, 1), y.flatten())
simulator = build_simulator(
    FedAvg(),
    build_model(case.name, case.shape, case.classes, seed=0),
    [samples.subset(range(start, start + case.samples)) for start in range(0, len(samples), case.samples)],
    rounds=case.rounds + 1,
    local_steps=case.steps,
    batch_size=case.batch,
    local_lr=LOCAL_LR,
    engine=engine,
)
rounds = simulator.rounds(simulator.initial_state())
time_rounds(case, lambda: next(rounds))
simulator.engine.close()
