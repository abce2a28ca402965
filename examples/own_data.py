"""Compare methods with your own model on your own clients: any nn.Module, and one (x, y) pair of tensors per client."""

import torch
from torch import Tensor, nn

import fedtaco

generator = torch.Generator().manual_seed(0)
centres = torch.randn(3, 8, generator=generator)


def draw_patients(count: int, diagnoses: Tensor) -> tuple[Tensor, Tensor]:
    """Draw eight measurements and a diagnosis for each of ``count`` patients."""
    y = diagnoses[torch.randint(0, len(diagnoses), (count,), generator=generator)]
    return centres[y] + torch.randn(count, 8, generator=generator), y


def build_model() -> nn.Module:
    """Return the model; torch is seeded when it is called, so that the weights depend on the seed of the run."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


# Six hospitals, each with one diagnosis that is four times as frequent as each of the others, and a balanced test set.
all_diagnoses = torch.arange(3)
clients = [draw_patients(200, torch.cat([all_diagnoses, torch.full((3,), number % 3)])) for number in range(6)]
test = draw_patients(500, all_diagnoses)

comparison = fedtaco.compare(
    ["fedavg", "scaffold", "taco"],
    model=build_model,
    clients=clients,
    test=test,
    name="hospitals",
    seeds=3,
    rounds=10,
    local_steps=20,
    local_lr=0.05,
    out="runs/hospitals",
    resume=True,
)
print(comparison)

result = fedtaco.load("runs/hospitals/taco-seed0", model=build_model)
for record in result.history:
    print(f"round {record.round:2}  accuracy {record.accuracy:.1%}")
result.save("model.safetensors")
