"""How fast could it go on this machine: two real processes on a host of their own."""
