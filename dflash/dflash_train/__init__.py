"""dflash-train: trains a DFlash drafter against a frozen target."""
