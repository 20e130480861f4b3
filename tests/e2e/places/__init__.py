"""Real places to watch: OpenSSH on loopback, an LXC container with lxcfs, Proxmox's `pct`.

Root on Linux only. Elsewhere each fixture skips with its reason; where the environment says CI it
fails instead.
"""
