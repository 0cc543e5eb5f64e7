"""Ways to move frames between two processes, behind one face: this pool, iceoryx2, ZeroMQ, and bare copies.

Each end does the same job. The sender fills an array where the frame will be sent from (a loan), or hands
over one of its own (a copy); the receiver gets a NumPy array over the frame, or a private copy of it.
"""

from __future__ import annotations
