"""`python -m comsd.cli` is `comsd`."""

from comsd.cli import main

main()
