"""Problems asked backward: the answer is given, and one of the numbers is asked for."""
