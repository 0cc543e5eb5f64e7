"""From requirements to the tests that show them; `tools/trace.py` is the command."""
