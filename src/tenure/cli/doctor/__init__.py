"""What `kubectl runs doctor` looks at: an installation in a cluster, or an embedded fleet's file and machine."""
