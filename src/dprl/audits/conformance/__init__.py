"""Suites for the audits: how each kind of algorithm is planned, released on neighbouring inputs, and attacked."""
