"""What needs the peers themselves is run in their environment alone."""

collect_ignore_glob = ["real_*.py"]
