"""Problems whose solution has several parts with tests for each part and for the whole."""
