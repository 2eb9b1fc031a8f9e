"""References that keep versions: tags, clones and branches."""
