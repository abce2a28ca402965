"""``python -m fedtaco`` is the command ``fedtaco``."""

from fedtaco.cli.main import main

if __name__ == "__main__":
    main()
