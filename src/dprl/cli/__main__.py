"""``python -m dprl.cli``."""

from dprl.cli import main

main()
