"""What is looked at before a run trains: checks that refuse to train wrong, and the room it needs.

`check` is the record and its table; `bench` what checks work on; the others hold the checks.
"""
