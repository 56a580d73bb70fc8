"""`python -m comsd` is the command `comsd`."""

from comsd.cli import main

if __name__ == "__main__":
    main()
