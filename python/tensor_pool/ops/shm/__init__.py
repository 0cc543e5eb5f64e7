"""What lies in shared memory: which epochs there are, what is in them, whether it is right, what may go.

Files are read with system calls and never mapped, so that a file that shrinks or lies gives a message and not
a signal. Only `collect` changes anything, and it only removes.
"""
