"""Methods that experiments compare: one file per family, each with ``METHODS``."""
