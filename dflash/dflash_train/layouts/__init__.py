"""Published drafters: the z-lab (Hugging Face) layout and that of speculators, read and written.

`geometry` knows configuration files and imports no torch; `weights` reads and writes folders;
`table` says how serving engines will read one.
"""
