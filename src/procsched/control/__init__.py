"""A way for other programs of the same user to talk to a running scheduler: a socket in the file system, no port."""
