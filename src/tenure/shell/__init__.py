"""What surrounds the engine: makes its decisions durable and carries them out."""
