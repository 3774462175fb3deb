"""Engine that runs every program: sources of units, rows, plans, the loop on the host and the compiled loop."""
