"""Where the sums over a log in parts are computed. Nothing is imported here, so that a worker starts with little."""
