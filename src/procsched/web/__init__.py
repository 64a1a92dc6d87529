"""The dashboard: a page over HTTP (extra ``web``), by itself or in an application of the user's."""
