"""Diagnostics: what the uploads of a round reveal about the run."""
