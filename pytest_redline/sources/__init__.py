"""Where outcomes come from, one module for each kind of source."""
