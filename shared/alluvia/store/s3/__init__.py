"""S3 and stores with its interface: requests by obstore, credentials, listings, and the proof of conditional writes."""
