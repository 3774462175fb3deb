"""Functions of states: features, networks, and the files of released functions."""
