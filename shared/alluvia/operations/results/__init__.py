"""Results of queries, jobs, and parts of uploads, as objects of a lake."""
