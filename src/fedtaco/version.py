"""The version of fedtaco."""

__version__ = "0.1.0"
