"""``python -m dprl``."""

from dprl.cli import main

main()
