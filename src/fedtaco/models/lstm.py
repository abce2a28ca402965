"""LEAF's character model for Shakespeare: an embedding, two LSTM layers, and a guess at the next letter."""

from torch import Tensor, nn

from fedtaco.errors import InvalidInput


class CharacterLstm(nn.Module):
    """Reads codes of letters (n, length) and scores each letter as the next one."""

    def __init__(self, letters: int, embedding: int = 8, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.output = nn.Linear(hidden, letters)

    def forward(self, codes: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(codes))
        scores: Tensor = self.output(states[:, -1])
        return scores


def lstm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Embedding of 8, two layers of 256.

    >>> sum(p.numel() for p in lstm((80,), 80).parameters())
    819920
    """
    if len(shape) != 1:
        raise InvalidInput(f"The lstm takes sequences of letters, not inputs of shape {shape}; try cnn.")
    return CharacterLstm(classes)
