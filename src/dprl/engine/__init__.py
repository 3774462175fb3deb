"""Engine that every program runs on: sources of units, rows, plans, the host loop and the compiled loop."""
