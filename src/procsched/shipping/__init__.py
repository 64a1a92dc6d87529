"""From a call to bytes, once, in the caller's thread; and what those bytes need in a worker (`refetch`)."""
