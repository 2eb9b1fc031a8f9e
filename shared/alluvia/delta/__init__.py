"""The Delta format: a table at one version, and what its log and files mean."""
