"""Edits of rows: what an edit is, its planning, and its work on files; deletes, updates, upserts and merges."""
