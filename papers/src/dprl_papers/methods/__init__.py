"""The methods that are compared: one file a family, each with ``METHODS``."""
