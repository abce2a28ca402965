"""The personal layers of the clients of a run, from its state or from its folder."""

from collections.abc import Mapping

import torch

from fedtaco.errors import InvalidInput
from fedtaco.files import reading_run
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel
from fedtaco.records import RunFolder


def personal_layers(model: FlatModel, memories: Mapping[int, NamedTensors], clients: int) -> list[NamedTensors]:
    """Return the personal parameters and buffers of each client, by name.

    Parameters
    ----------
    model
        The model, of which some layers may be personal.
    memories
        Memories of the clients that took part.
    clients
        Number of all clients.
    """
    return [model.personal_state(memories.get(client, {})) for client in range(clients)]


def read_personal_layers(folder: RunFolder, model: FlatModel) -> list[NamedTensors]:
    """Read the personal parameters and buffers of each client from the checkpoint of a run that has ended.

    Raises
    ------
    InvalidInput
        If there is no checkpoint, it is damaged, or it is not of the last round.
    """
    clients = int(folder.config()["clients"])
    if not model.personal_names:
        return personal_layers(model, {}, clients)
    stored = folder.load_checkpoint()
    if stored is None or stored[0] != len(folder.rounds()):
        raise InvalidInput(
            f"{folder.path} has no checkpoint of its last round, which contains the personal layers of the clients; "
            "restore it from a copy, or start the run again (overwrite)."
        )
    memories = {
        client: {name: torch.from_numpy(array) for name, array in arrays.items()}
        for client, arrays in stored[2].items()
    }
    with reading_run(folder.checkpoint.folder):
        return personal_layers(model, memories, clients)
