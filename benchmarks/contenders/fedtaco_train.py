"""fedtaco: a whole run of FedAvg by ``fedtaco.train``, with its set-up, and with torch's default number of threads."""

import json
import sys
from pathlib import Path
from time import perf_counter

from fedtaco import train

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import LOCAL_LR, parse_arguments

case, engine = parse_arguments()
clients = list(zip(*case.data(), strict=True))
started = perf_counter()
train(
    case.model(),
    clients,
    method="fedavg",
    rounds=case.rounds + 1,
    local_steps=case.steps,
    batch_size=case.batch,
    local_lr=LOCAL_LR,
    participation=case.share,
    engine=engine,
)
print(json.dumps({"run_s": perf_counter() - started}))
