"""The plain PyTorch loop as researchers write it, with a copy of the model for each client and ``optimizer.step()``."""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import LOCAL_LR, parse_arguments, time_rounds

case, threads = parse_arguments()
torch.set_num_threads(int(threads))
model = case.model()
data, labels = case.data()
loss_function = nn.CrossEntropyLoss()


def run_round() -> None:
    total: dict[str, torch.Tensor] = {}
    for client in torch.randperm(case.clients)[: case.cohort].tolist():
        x, y = data[client], labels[client]
        local = copy.deepcopy(model)
        local.train()
        optimizer = torch.optim.SGD(local.parameters(), lr=LOCAL_LR)
        order = torch.cat([torch.randperm(len(y)) for _ in range(-(-case.steps * case.batch // len(y)))])
        for step in range(case.steps):
            indices = order[step * case.batch : (step + 1) * case.batch]
            optimizer.zero_grad()
            loss = loss_function(local(x[indices]), y[indices])
            loss.backward()
            optimizer.step()
        for name, tensor in local.state_dict().items():
            total[name] = total.get(name, 0) + tensor / case.cohort
    model.load_state_dict(total)


time_rounds(case, run_round)
