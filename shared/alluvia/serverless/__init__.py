"""Shared by the functions and the local server: HTTP, authorization, settings, and the lake of a warm process."""
