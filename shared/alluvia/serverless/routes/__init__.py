"""The HTTP interface, declared once: its routes with their fields, rights and answers, and the OpenAPI document."""
