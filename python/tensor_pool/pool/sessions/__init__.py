"""The control plane of a program: one agent for all its streams, one session for each of them."""
