"""The paper's CNN for images (NIID-Bench's): two 5×5 convolutions and three fully connected layers.

For speed, images are stored with channels last, and max-pooling comes before ReLU, which gives the same result.
"""

from torch import Tensor, nn

from fedtaco.errors import InvalidInput


class ChannelsLast(nn.Module):
    """Stores images (n, c, h, w) with channels last in memory, where convolution and pooling are faster."""

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        return x.permute(0, 2, 3, 1).reshape(n, h * w * c).view(n, h, w, c).permute(0, 3, 1, 2)


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return convolutions with 6 and 16 channels and 2×2 max-pooling, then layers of 120, 84 and ``classes`` units.

    The last layer is called ``head``.

    >>> [sum(p.numel() for p in cnn(shape, 10).parameters()) for shape in ((1, 28, 28), (3, 32, 32))]
    [44426, 62006]
    """
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise InvalidInput(f"The cnn takes images of at least 16 × 16 pixels, not inputs of shape {shape}; try mlp.")
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    module = nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(shape[0], 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    module.add_module("head", nn.Linear(84, classes))
    return module
