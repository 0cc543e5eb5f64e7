"""Commands that write, list and check recordings."""
