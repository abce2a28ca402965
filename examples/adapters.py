"""Adapters and personal heads: of a transformer, only low-rank adapters are sent to the server.

The encoder is frozen. Small adapters on its attention projections (as in LoRA) are trained and shared by all clients,
and each client keeps a head of its own, because the clients name the same four topics differently.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

import fedtaco

TOPICS, VOCABULARY, LENGTH, WIDTH = 4, 40, 12, 32


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus a trainable product of two thin matrices, which begins at zero."""

    def __init__(self, width: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False))
        nn.init.zeros_(self.adapter.get_parameter("1.weight"))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x) + self.adapter(x)
        return y


class Encoder(nn.Module):
    """One layer of attention over frozen embeddings; it is called as the models of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False)
        self.query, self.key, self.value = (AdaptedLinear(WIDTH) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH).requires_grad_(False)
        self.head = nn.Linear(WIDTH, TOPICS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        x = self.embedding(input_ids)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        scores = scores.masked_fill(attention_mask[:, None, :] == 0, -torch.inf)
        x = self.norm(x + scores.softmax(2) @ self.value(x))
        words = attention_mask[:, :, None]
        return SimpleNamespace(logits=self.head((x * words).sum(1) / words.sum(1)))


def draw_texts(count: int, names: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Draw texts of different lengths, about half of whose words belong to the text's topic; return names of topics."""
    topics, lengths = torch.randint(0, TOPICS, (count,)), torch.randint(4, LENGTH + 1, (count,))
    words, of_topic = torch.randint(0, VOCABULARY, (count, LENGTH)), torch.rand(count, LENGTH) < 0.5
    words = torch.where(of_topic, words // TOPICS * TOPICS + topics[:, None], words)
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"input_ids": words * mask, "attention_mask": mask}, names[topics]


if __name__ == "__main__":
    torch.manual_seed(0)
    names = [torch.randperm(TOPICS) for _ in range(6)]
    clients, tests = ([draw_texts(count, own) for own in names] for count in (200, 100))
    model = Encoder()
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    adapters, head = (sum(sizes[name] for name in sizes if part in name) for part in ("adapter", "head"))
    total = sum(sizes.values())
    print(f"Of {total:,} parameters, a client sends the {adapters:,} of adapters and keeps the {head:,} of its head.")

    for personal in (None, "head.*"):
        result = fedtaco.train(
            model, clients, client_tests=tests, method="taco", rounds=8, local_steps=10, local_lr=0.5, personal=personal
        )
        accuracies = [one.accuracy or 0.0 for one in result.client_evaluations]
        kind = "shared" if personal is None else "personal"
        print(f"{kind} head: {min(accuracies):.0%} to {max(accuracies):.0%} of the texts of a client are recognised")
