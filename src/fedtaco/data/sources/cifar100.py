"""CIFAR-100: photographs of a hundred kinds of objects, with fine labels, in the format of CIFAR-10."""

from dataclasses import replace

from fedtaco.data.sources.base import HubColumns
from fedtaco.data.sources.cifar import CifarSource
from fedtaco.data.sources.cifar10 import CIFAR10 as _CIFAR10

_INFO = replace(
    _CIFAR10.info,
    name="cifar100",
    title="CIFAR-100, fine labels",
    classes=100,
    model="resnet18",
    partition="dirichlet:0.5",
    folders=("cifar-100-python",),
    files=("train", "test"),
    hub="uoft-cs/cifar100",
)
CIFAR100 = CifarSource(_INFO, HubColumns("img", "fine_label"), label_key="fine_labels")
