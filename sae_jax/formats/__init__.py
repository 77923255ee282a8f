"""Other people's files: readers and writers, one module per format."""
