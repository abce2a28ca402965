"""A small text classifier with the calling convention of transformers, and clients for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

CODES, LENGTH = 12, 6


@dataclass
class ClassifierOutput:
    logits: Tensor


class TextClassifier(nn.Module):
    """Mean embedding of the codes that are not masked, and a linear layer."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.embedding = nn.Embedding(CODES, 4)
            self.output = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        weights = attention_mask / attention_mask.sum(1, keepdim=True)
        return ClassifierOutput(self.output((self.embedding(input_ids) * weights[..., None]).sum(1)))


class TextDataset(torch.utils.data.Dataset):
    """Texts as dictionaries; texts with many small codes have the label 1."""

    def __init__(self, seed, count=40):
        generator = torch.Generator().manual_seed(seed)
        self.codes = torch.randint(0, CODES, (count, LENGTH), generator=generator)
        lengths = torch.randint(2, LENGTH + 1, (count, 1), generator=generator)
        self.masks = (torch.arange(LENGTH) < lengths).long()
        self.labels = ((self.codes < CODES // 2) * self.masks).sum(1).gt(lengths[:, 0] / 2).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.codes[index], "attention_mask": self.masks[index], "labels": self.labels[index]}

    def columns(self):
        """Return all texts and labels as one dictionary."""
        return {"input_ids": self.codes, "attention_mask": self.masks, "labels": self.labels}


def text_clients(count=4):
    return [TextDataset(seed) for seed in range(count)]
