"""The kinds of webhook sources: how each sender signs, identifies and dates its events."""
