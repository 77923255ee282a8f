"""Problems read from records in your own files or in data sets on a hub."""
