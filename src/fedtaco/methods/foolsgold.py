"""FoolsGold as the paper describes it: uploads are weighted by their cosine with the mean upload.

The paper's ρ_i refers to the weighted result itself, which is circular, and its formula carries a
stray 1/N; we take the cosine with the unweighted mean, clip it at zero, and let the weights sum
to one. The original FoolsGold (Fung et al., 2020) is a different rule.
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
