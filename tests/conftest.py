"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# Two cores, shared with drivers and other processes of the tests: an example that was slow once says nothing.
settings.register_profile("shared machine", deadline=None, print_blob=True)
settings.load_profile("shared machine")

# A shell that starts `make test &` from a script has SIGINT ignored, which every child inherits: none would
# end at Ctrl-C. A handler of ours is not inherited; children begin with what a terminal would give them.
signal.signal(signal.SIGINT, signal.default_int_handler)
