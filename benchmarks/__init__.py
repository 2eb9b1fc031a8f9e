"""Measurements of Alluvia and of its peers, side by side on the same server and data: `make bench`."""
