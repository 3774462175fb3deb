"""Public tasks whose data are independent records: losses, tables, and families of tasks (paper 002)."""
