"""The only rooms that clip, sample and draw privacy noise."""
