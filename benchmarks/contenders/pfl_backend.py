"""pfl-research: its simulated backend with federated averaging, in one process and without evaluation."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import MetricValue
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import LOCAL_LR, parse_arguments, time_rounds

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"  # otherwise pfl looks for other devices at every batch
case, threads = parse_arguments()
torch.set_num_threads(int(threads))


class Trainable(nn.Module):
    """A model with the methods that pfl requires."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, MetricValue]:
        raise RuntimeError("pfl evaluates the model, which no other contender does; the comparison would be unfair")


class CycledDataset(PyTorchTensorDataset):
    """A user's tensors, reshuffled for each pass; pfl's own dataset ends after one pass, with a smaller last batch."""

    def iter(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.raw_data
        drawn = case.steps * batch_size
        order = torch.cat([torch.randperm(len(y)) for _ in range(-(-drawn // len(y)))])
        for indices in order[:drawn].split(batch_size):
            yield x[indices], y[indices]


users = [CycledDataset(tensors) for tensors in zip(*case.data(), strict=True)]
dataset = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(range(case.clients)))
backend = SimulatedBackend(training_data=dataset, val_data=dataset)
algorithm = FederatedAveraging()
trainable = Trainable(case.model())
model = PyTorchModel(trainable, torch.optim.SGD, torch.optim.SGD(trainable.parameters(), lr=1.0))
context = CentralContext(
    current_central_iteration=0,
    do_evaluation=False,
    cohort_size=case.clients,
    population=Population.TRAIN,
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=case.rounds + 1,
        evaluation_frequency=case.rounds + 1,
        train_cohort_size=case.clients,
        val_cohort_size=None,
    ),
    model_train_params=NNTrainHyperParams(
        local_batch_size=case.batch, local_num_epochs=None, local_learning_rate=LOCAL_LR, local_num_steps=case.steps
    ),
)


def run_round() -> None:
    statistics, metrics = backend.gather_results(model, algorithm, central_context=context)
    algorithm.process_aggregated_statistics(context, metrics, model, statistics)


time_rounds(case, run_round)
