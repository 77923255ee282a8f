"""Problems asked backward: their answer given, one of their numbers asked for."""
