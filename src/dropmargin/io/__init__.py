"""Files: reading data, saving and loading models."""
