"""Events, from a request to rows and rejects: formats of bodies, sources of webhooks, and ingestion."""
