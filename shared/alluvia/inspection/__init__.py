"""The contents of a lake as rows: versions, files, partitions, columns, row groups, changes and tables."""
