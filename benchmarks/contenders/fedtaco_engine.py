"""fedtaco: FedAvg on the engine that the command line names."""

import sys
from pathlib import Path

from fedtaco.data import TensorSamples
from fedtaco.methods import FedAvg
from fedtaco.models import build_model

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import LOCAL_LR, parse_arguments, time_rounds
from simulators import build_federation

case, engine = parse_arguments()
x, y = case.data()
samples = TensorSamples(x.flatten(0, 1), y.flatten())
federation = build_federation(
    FedAvg(),
    build_model(case.name, case.shape, case.classes, seed=0),
    [samples.subset(range(start, start + case.samples)) for start in range(0, len(samples), case.samples)],
    rounds=case.rounds + 1,
    local_steps=case.steps,
    batch_size=case.batch,
    local_lr=LOCAL_LR,
    engine=engine,
)
rounds = federation.rounds(federation.initial)
time_rounds(case, lambda: next(rounds))
federation.clients.stop()
