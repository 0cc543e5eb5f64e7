"""Assembles the services of one host from its configuration."""
