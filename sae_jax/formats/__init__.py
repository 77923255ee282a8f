"""Readers and writers of other projects' files, one module per format."""
