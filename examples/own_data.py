"""Your own model and clients: any nn.Module, and one (x, y) pair of tensors for each client."""

import torch
from torch import nn

import fedtaco
from fedtaco import Taco

torch.manual_seed(0)
centres = torch.randn(3, 8)


def hospital(favourite: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two thirds of a hospital's patients have its favourite diagnosis."""
    y = torch.where(torch.rand(200) < 2 / 3, favourite, torch.randint(0, 3, (200,)))
    return centres[y] + torch.randn(200, 8), y


clients = [hospital(number % 3) for number in range(6)]
test_y = torch.randint(0, 3, (500,))
test = (centres[test_y] + torch.randn(500, 8), test_y)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
result = fedtaco.train(model, clients, test, method=Taco(), rounds=10, local_steps=20, local_lr=0.05)

for record in result.history:
    print(f"round {record.round:2}  accuracy {record.accuracy:.1%}")
result.save("model.safetensors")
