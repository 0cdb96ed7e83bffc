"""Tenure in Kubernetes: the same engine, with the API server as its store and pods as its processes."""
