"""Logs: their formats, the checks of their columns, privacy units, parts, and tables that become logs."""
