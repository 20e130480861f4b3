"""Evidence that somebody pasted, as the records that the live engine reads. No connection."""
