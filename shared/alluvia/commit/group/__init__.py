"""Group commits: writers that meet offer their rows, and one of them commits for all."""
