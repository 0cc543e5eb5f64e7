"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Two cores, shared with drivers and other processes of the tests: an example that was slow once says nothing.
settings.register_profile("shared machine", deadline=None, print_blob=True)
settings.load_profile("shared machine")
