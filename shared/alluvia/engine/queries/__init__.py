"""The text of a query: how it is parsed, checked, and rewritten to run over views."""
