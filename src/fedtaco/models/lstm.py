"""LEAF's character model for Shakespeare: an embedding, two LSTM layers and a linear layer."""

from torch import Tensor, nn

from fedtaco.errors import InvalidInput


class CharacterLstm(nn.Module):
    """Reads codes of characters (n, length) and returns one score per possible next character."""

    def __init__(self, characters: int, embedding: int = 8, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, characters)

    def forward(self, codes: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(codes))
        scores: Tensor = self.head(states[:, -1])
        return scores


def lstm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return LEAF's model, with an embedding of 8 dimensions and two layers of 256 units.

    >>> sum(p.numel() for p in lstm((80,), 80).parameters())
    819920
    """
    if len(shape) != 1:
        raise InvalidInput(f"The lstm takes sequences of characters, not inputs of shape {shape}; try cnn.")
    return CharacterLstm(classes)
