"""dflash-watch: says what a training run is doing, why, and what to do next."""
