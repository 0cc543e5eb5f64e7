"""The rate limiter: a stream again as another one of the same pool, with at most so many frames a second."""
