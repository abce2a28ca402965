"""A method of your own: FedAvg that clips the norm of each upload.

Run this file, or name the method on the command line in this folder:

    fedtaco run --method own_method:Clipped --set clipped.limit=0.5
"""

from dataclasses import dataclass

from torch import Tensor

import fedtaco
from fedtaco import Method, parameter
from fedtaco.methods import LocalContext, NamedTensors


@dataclass(frozen=True)
class Clipped(Method):
    name = "clipped"
    summary = "clips the norm of each upload"

    limit: float = parameter(1.0, "maximum norm of an upload", low=0, open_low=True)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        norm = update.norm(dim=-1, keepdim=True)
        return {"update": update * (self.limit / norm).clamp(max=1)}, local.memory


if __name__ == "__main__":
    from fedtaco.testing import check_method

    check_method(Clipped())
    result = fedtaco.run(Clipped(limit=0.5), dataset="digits", rounds=5)
    print(f"accuracy after 5 rounds: {result.history.final_accuracy:.1%}")
