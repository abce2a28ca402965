"""A method of your own: FedAvg that clips each upload to a length. Run it, or name it to the command line:

fedtaco run --method own_method:Clipped --set clipped.limit=0.5
"""

from dataclasses import dataclass

import fedtaco
from fedtaco import Method, parameter


@dataclass(frozen=True)
class Clipped(Method):
    name = "clipped"
    summary = "shortens uploads that are longer than a limit"

    limit: float = parameter(1.0, "the longest upload that is sent as it is", low=0, open_low=True)

    def finish(self, update, local):
        length = update.norm(dim=-1, keepdim=True)
        return {"update": update * (self.limit / length).clamp(max=1)}, local.memory


if __name__ == "__main__":
    from fedtaco.testing import check_method

    check_method(Clipped())
    result = fedtaco.run(Clipped(limit=0.5), dataset="digits", rounds=5)
    print(f"{result.history.final_accuracy:.1%} after 5 rounds")
