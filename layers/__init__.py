"""Recipes that build the Lambda layers and the Spark archive from the lock file, without Docker."""
