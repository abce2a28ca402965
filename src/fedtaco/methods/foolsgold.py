"""FoolsGold as the paper describes it: uploads are weighted by their cosine with the mean upload.

The paper defines ρ_i by the weighted result itself, which is circular, and its formula has a superfluous
factor 1/N. Here ρ_i is the cosine with the unweighted mean, clipped at zero, and the weights sum to one.
The original FoolsGold (Fung et al., 2020) is a different method.
"""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.base import Method, ServerState, Uploads


@dataclass(frozen=True)
class FoolsGold(Method):
    """p_i in proportion to max(0, cos(U_i, mean U))."""

    name = "foolsgold"
    summary = "weights uploads by their cosine with the mean upload"

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return uploads.weights_proportional_to(uploads.geometry.cosines.clamp(min=0))
