"""ResNet-18 (He et al., 2016) for small images: a 3×3 stem and no pooling before the blocks.

By default it uses GroupNorm with two groups, so that the model has no buffers. ``resnet18:batchnorm`` uses
BatchNorm, whose running statistics are buffers that the server averages. Names of norm layers contain ``norm``, and the
last layer is called ``head``.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import relu

from fedtaco.errors import InvalidInput

Norm = Callable[[int], nn.Module]
NORMS: dict[str, Norm] = {"groupnorm": partial(nn.GroupNorm, 2), "batchnorm": nn.BatchNorm2d}


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, channels_in: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            conv = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(conv=conv, norm=norm(channels)))

    def forward(self, x: Tensor) -> Tensor:
        out = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def resnet18(shape: tuple[int, ...], classes: int, norm: str = "groupnorm") -> nn.Module:
    """Return two blocks each of 64, 128, 256 and 512 channels, then average pooling and a linear layer.

    >>> sum(p.numel() for p in resnet18((3, 32, 32), 100).parameters())
    11220132
    """
    if len(shape) != 3:
        raise InvalidInput(f"resnet18 takes images, not inputs of shape {shape}; try mlp.")
    make_norm = NORMS[norm]
    blocks: list[nn.Module] = []
    for before, channels, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        blocks += [BasicBlock(before, channels, stride, make_norm), BasicBlock(channels, channels, 1, make_norm)]
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            norm=make_norm(64),
            relu=nn.ReLU(),
            **{f"block{number}": block for number, block in enumerate(blocks, 1)},
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(512, classes),
        )
    )
