"""Results as text: for people, for programs, for Nagios. Pure: a snapshot in, text out."""
