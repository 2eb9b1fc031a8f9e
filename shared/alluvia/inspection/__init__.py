"""What a lake holds, as rows: versions, files, partitions, columns, row groups, changes and tables."""
