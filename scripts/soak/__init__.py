"""Long random tests: ``python scripts/soak --help``."""
