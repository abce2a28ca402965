"""What a method costs a client: computation, memory and communication."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a method costs a client in a round; the contract test measures it."""

    gradients: int = 1
    """Gradient evaluations per step."""
    gradients_saved: int = 0
    """Gradient evaluations to subtract per round, for instance 1 if the first step needs one less."""
    full_passes: int = 0
    """Gradients over all the client's samples, per round."""
    vector_ops: int = 0
    """Further operations on whole vectors per step."""
    memory: int = 0
    """Vectors the client keeps between rounds."""
    down: int = 1
    """Vectors received per round."""
    up: float = 1
    """Vectors sent per round."""
    scalars_down: int = 0
    """Single numbers received per round."""
