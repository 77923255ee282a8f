"""Problems whose answers are programs, read from records or generated."""
