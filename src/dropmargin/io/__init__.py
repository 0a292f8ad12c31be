"""Files: data to read, models to save and to load."""
