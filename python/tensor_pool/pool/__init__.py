"""Producers and consumers of named streams; so far, what they do with an announce."""
