"""The dashboard: draws the snapshots that dflash_watch publishes."""
