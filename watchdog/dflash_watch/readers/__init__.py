"""Readers: text from strangers becomes facts. Nothing here runs, opens or decides anything."""
