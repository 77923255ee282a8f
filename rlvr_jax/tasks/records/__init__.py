"""Problems read from records: files of one's own, data sets of a hub."""
