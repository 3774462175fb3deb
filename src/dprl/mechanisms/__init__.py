"""The only package that clips units' vectors, samples units and draws privacy noise."""
