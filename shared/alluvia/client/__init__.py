"""A lake behind a server, `alluvia serve` or the functions on AWS, by the HTTP routes that they all have."""
