"""Public tasks whose data are independent records (paper 002): losses, tables, and families of tasks."""
