"""The demo: a synthetic camera in one process, a viewer in another, tensors in shared memory between them."""
