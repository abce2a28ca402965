"""What clients do in a round: the only training loop, for one client or for a stack of clients."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from fedtaco.cohort import ClientJob, ClientResult, Instructions, describe_clients
from fedtaco.data import Samples, StackedBatches, batch_plan, capped_batch_size
from fedtaco.device import CPU, seed_torch, synchronize
from fedtaco.inputs import Batch
from fedtaco.local_optimizer import State
from fedtaco.methods import Constants, LocalContext, Method, NamedTensors
from fedtaco.models import FlatModel, Loss, Stack, split_memory
from fedtaco.randomness import generator, torch_seed
from fedtaco.records import finite_or_none

FULL_PASS_BATCH = 1024


@dataclass(frozen=True)
class ClientConfig:
    """Settings that all clients of a run share."""

    constants: Constants
    batch_size: int
    loss: Loss
    seed: int


@dataclass(frozen=True)
class ClientRunner:
    """Trains clients on one model: one at a time, or several at once if they take equally many steps."""

    model: FlatModel
    clients: Mapping[int, Samples]
    """Samples of the clients that may run here, by client."""
    config: ClientConfig

    def warm_up(self) -> None:
        """Compute one gradient, so that torch's start-up time is not measured as part of a client's training."""
        self.model.module.train()
        with torch.random.fork_rng(devices=[]):
            self.model.gradient(self.model.vector, self.first_batch(), self.config.loss, seed=0)

    def first_batch(self) -> Batch:
        """Return a full batch of the first client's samples, repeated if there are too few."""
        samples = next(iter(self.clients.values()))
        size = capped_batch_size(self.config.batch_size, len(samples))
        return self.model.move_batch(samples.batch(torch.arange(size) % len(samples)))

    def new_memory(self, method: Method, start: Tensor) -> NamedTensors:
        """Return the memory of a client before its first round: the method's, and the initial personal layers."""
        return {**method.client_memory(start, self.config.constants), **self.model.initial_personal}

    def run(self, method: Method, instructions: Instructions, job: ClientJob) -> ClientResult:
        """Run one client."""
        with _note_clients_on_error([job], method, instructions):
            return _SingleClient(self, instructions, job).result(method)

    def run_stacked(
        self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob], stack: Stack
    ) -> list[ClientResult]:
        """Run several clients, with the same number of steps, in one computation."""
        with _note_clients_on_error(jobs, method, instructions):
            return _StackedClients(self, instructions, jobs, stack).results(method)


class _LocalTraining(ABC):
    """The local training of a round, on vectors of shape (d,) or (n, d)."""

    local: LocalContext

    def __init__(self, runner: ClientRunner, instructions: Instructions, steps: int, memory: NamedTensors) -> None:
        self.runner, self.model, self.config = runner, runner.model, runner.config
        self.instructions, self.steps = instructions, steps
        self.constants = self.config.constants.in_round(instructions.round)
        self.optimizer, self.gradients = self.constants.optimizer, 0
        self.gradient_state: State = ()
        self.personal_gradient: Tensor | None = None
        """Gradient of the personal parameters at the current point; ``None`` before a step has computed one."""
        self.model.load(instructions.broadcast.start, instructions.buffers, memory)
        self.model.module.train()
        self.start = instructions.broadcast.start.to(self.model.device)
        self.clock = _Clock(self.model.device)
        self.losses: list[Tensor] = []
        """The losses of the steps so far, each one number or one per client."""

    @abstractmethod
    def fetch(self, step: int) -> None:
        """Load the batch of a step."""

    @abstractmethod
    def plain_gradient(self, point: Tensor) -> Tensor:
        """Return the gradient of the loss on the batch of the step, as a new tensor; see :meth:`FlatModel.gradient`."""

    @abstractmethod
    def plain_full_gradient(self, point: Tensor) -> Tensor:
        """Return the gradient of the loss over all samples."""

    def gradient(self, point: Tensor) -> Tensor:
        """Return the gradient that the method sees: clipped, with weight decay, and transformed by the optimizer.

        Personal parameters are treated in the same way. Their part of the first gradient of a step is kept for the
        step; it is the one at the client's current point.
        """
        self.gradients += 1
        has_personal = self.model.personal.numel() > 0
        x = torch.cat([point, self.model.personal]) if has_personal else point
        gradient = self.optimizer.add_decay(self.optimizer.clip(self.plain_gradient(point)), x)
        gradient, self.gradient_state = self.optimizer.transform(gradient, x, self.gradient_state, self.gradients)
        if not has_personal:
            return gradient
        shared, personal = gradient.tensor_split((len(point),))
        if self.personal_gradient is None:
            self.personal_gradient = personal
        return shared

    def full_gradient(self, point: Tensor) -> Tensor:
        return self.optimizer.add_decay(self.plain_full_gradient(point), point)

    def make_local(self, scalars: NamedTensors, memory: NamedTensors) -> LocalContext:
        """Return the context that the method's client hooks receive."""
        return LocalContext(
            constants=self.constants,
            start=self.start,
            received={**self.model.to_device(self.instructions.broadcast.vectors), **scalars},
            memory=self.model.to_device(memory),
            steps=self.steps,
            gradient=self.gradient,
            full_gradient=self.full_gradient,
        )

    def run(self, method: Method, x: Tensor) -> tuple[NamedTensors, NamedTensors]:
        """Train ``x`` in place, or answer the survey, and return the upload and the client's new memory."""
        with torch.no_grad():
            if self.instructions.phase == "train":
                return self._train(method, x)
            with self.clock:
                return method.survey(self.local), self.local.memory

    def _train(self, method: Method, x: Tensor) -> tuple[NamedTensors, NamedTensors]:
        """Take K steps from the starting point; plain SGD's are ``x <- x - local_lr * direction``."""
        local = self.local
        state: State = ()
        personal_state: State = ()
        with self.clock:
            local.correction = method.correction(local)
        for local.step in range(self.steps):
            self.fetch(local.step)
            with self.clock:
                step, state = self.optimizer.descend(method.direction(x, local), state)
                x.sub_(step, alpha=self.constants.local_lr)
                if self.personal_gradient is not None:
                    step, personal_state = self.optimizer.descend(self.personal_gradient, personal_state)
                    self.model.personal.sub_(step, alpha=self.constants.local_lr)
                    self.personal_gradient = None
        with self.clock:
            return method.finish(local.start - x, local)

    def add_loss(self, loss: Tensor) -> None:
        """Keep the loss of a step's first gradient, which is that at the client's current point."""
        if len(self.losses) == self.local.step:
            self.losses.append(loss)

    def mean_losses(self, clients: int) -> list[float | None]:
        """Return the mean loss over the steps of each client; ``None`` if a step computed no gradient."""
        if len(self.losses) < self.steps:
            return [None] * clients
        by_step = torch.stack(self.losses).to(CPU).double().reshape(self.steps, clients)
        return [finite_or_none(loss) for loss in by_step.mean(0).tolist()]

    def first_sample_seed(self, client: int) -> int:
        """Return the seed of a dataset's random draws, such as random crops, in step 0; step k adds k to it."""
        return torch_seed(self.config.seed, "samples", client, self.instructions.round)

    def plan_batches(self, client: int) -> Tensor:
        """Return the indices of the samples in each batch, (steps, batch size)."""
        rng = generator(self.config.seed, "batches", client, self.instructions.round)
        return batch_plan(rng, len(self.runner.clients[client]), self.steps, self.config.batch_size)


class _SingleClient(_LocalTraining):
    def __init__(self, runner: ClientRunner, instructions: Instructions, job: ClientJob) -> None:
        super().__init__(runner, instructions, job.steps, job.memory)
        self.samples = runner.clients[job.client]
        self.plan = self.plan_batches(job.client)
        self.sample_seed = self.first_sample_seed(job.client)
        self.dropout_seed = torch_seed(self.config.seed, "dropout", job.client, instructions.round)
        scalars = {name: column[job.row] for name, column in instructions.broadcast.scalars.items()}
        memory, self.personal_memory = split_memory(job.memory)
        self.local = self.make_local(scalars, memory)

    def result(self, method: Method) -> ClientResult:
        upload, memory = self.run(method, self.model.vector)
        personal = self.model.personal_memory() if self.instructions.phase == "train" else self.personal_memory
        new_memory = {**to_cpu(memory), **personal}
        buffers, (training_loss,) = self.model.buffers.to(CPU, copy=True), self.mean_losses(1)
        return ClientResult(to_cpu(upload), new_memory, buffers, self.clock.seconds, training_loss)

    def fetch(self, step: int) -> None:
        seed_torch(self.sample_seed + step, CPU)
        self.batch = self.model.move_batch(self.samples.batch(self.plan[step]))

    def plain_gradient(self, point: Tensor) -> Tensor:
        seed = self.dropout_seed + self.local.step
        with torch.enable_grad():
            gradient, loss = self.model.gradient_and_loss(point, self.batch, self.config.loss, seed)
        self.add_loss(loss)
        return gradient

    def plain_full_gradient(self, point: Tensor) -> Tensor:
        count = len(self.samples)
        total = torch.zeros_like(point)
        for number, part in enumerate(_chunks(count)):
            seed_torch(self.sample_seed + number, CPU)
            batch = self.model.move_batch(self.samples.batch(part))
            with torch.enable_grad():
                gradient = self.model.gradient(point, batch, self.config.loss, self.dropout_seed)[: len(point)]
            total += gradient * (len(part) / count)
        return total


class _StackedClients(_LocalTraining):
    """Clients with the same number of steps, one row per client."""

    def __init__(
        self, runner: ClientRunner, instructions: Instructions, jobs: Sequence[ClientJob], stack: Stack
    ) -> None:
        super().__init__(runner, instructions, jobs[0].steps, {})
        self.jobs, self.stack = jobs, stack
        clients = [runner.clients[job.client] for job in jobs]
        plans = [self.plan_batches(job.client) for job in jobs]
        self.batches = StackedBatches(clients, plans, [self.first_sample_seed(job.client) for job in jobs])
        rows = torch.tensor([job.row for job in jobs])
        columns = {name: column[rows, None] for name, column in instructions.broadcast.scalars.items()}
        memory = {name: torch.stack([job.memory[name] for job in jobs]) for name in jobs[0].memory}
        self.local = self.make_local(self.model.to_device(columns), memory)

    def results(self, method: Method) -> list[ClientResult]:
        trained = self.run(method, self._rows(self.start).clone())
        upload, memory = (to_cpu(part) for part in trained)
        losses = self.mean_losses(len(self.jobs))
        return [
            ClientResult(
                {name: rows[position] for name, rows in upload.items()},
                {name: rows[position].clone() for name, rows in memory.items()},
                self.instructions.buffers,
                seconds=None,
                training_loss=losses[position],
            )
            for position in range(len(self.jobs))
        ]

    def fetch(self, step: int) -> None:
        self.batch = self.model.move_batch(self.batches.at(step))

    def plain_gradient(self, point: Tensor) -> Tensor:
        gradient, losses = self.stack.gradient_and_loss(self._rows(point), *self.batch)
        self.add_loss(losses)
        return gradient

    def plain_full_gradient(self, point: Tensor) -> Tensor:
        """Compute the gradient of one client after another, since they hold different numbers of samples."""
        alone = (_SingleClient(self.runner, self.instructions, job) for job in self.jobs)
        pairs = zip(alone, self._rows(point), strict=True)
        return torch.stack([client.plain_full_gradient(row) for client, row in pairs])

    def _rows(self, point: Tensor) -> Tensor:
        return point.expand(len(self.jobs), -1)


def _chunks(count: int) -> list[Tensor]:
    """Split the indices of all samples into chunks; a last chunk of one, on which batch norm fails, is merged.

    >>> [len(part) for part in _chunks(2049)]
    [1024, 1025]
    """
    parts = list(torch.split(torch.arange(count), FULL_PASS_BATCH))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


class _Clock:
    """Sums the seconds spent inside ``with`` blocks. Loading the batch of a step is not timed."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, 0.0

    def __enter__(self) -> None:
        self.started = perf_counter()

    def __exit__(self, *_: object) -> None:
        synchronize(self.device)
        self.seconds += perf_counter() - self.started


def dry_run(
    method: Method, instructions: Instructions, constants: Constants, memory: NamedTensors
) -> tuple[NamedTensors, NamedTensors]:
    """Return the upload and new memory of one step, or of a survey, computed with zero gradients.

    They have the names and shapes of real uploads and memories; personal layers in ``memory`` stay as they are.
    ``constants`` are those of the run.
    """
    constants = constants.in_round(instructions.round)
    memory, personal = split_memory(memory)
    local = instructions.context_without_samples(0, constants, memory)
    if instructions.phase == "survey":
        return method.survey(local), {**memory, **personal}
    local.correction = method.correction(local)
    update = constants.local_lr * method.direction(local.start, local)
    upload, new_memory = method.finish(update, local)
    return upload, {**new_memory, **personal}


def to_cpu(named: NamedTensors) -> NamedTensors:
    """Move named tensors to the CPU."""
    return {name: tensor.to(CPU) for name, tensor in named.items()}


@contextmanager
def _note_clients_on_error(jobs: Sequence[ClientJob], method: Method, instructions: Instructions) -> Iterator[None]:
    """Add a note to any error raised inside: the clients, round and method in which it was raised."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened to {describe_clients(jobs)} in round {instructions.round} of {method.name}.")
        raise
