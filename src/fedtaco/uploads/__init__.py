"""The uploads of a round behind a small vocabulary; where they are stored is decided here alone."""

from fedtaco.uploads.geometry import Geometry, geometry_of, gram_matrix, pairwise_cosines, weighted_sum
from fedtaco.uploads.vectors import UploadedVectors

__all__ = ["Geometry", "UploadedVectors", "geometry_of", "gram_matrix", "pairwise_cosines", "weighted_sum"]
