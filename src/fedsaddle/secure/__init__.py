"""Secure aggregation: averaged fields of replies reach the server as sums only."""
