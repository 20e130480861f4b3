"""A `pct` that does to lxc-attach what Proxmox's front end does.

Sets pct's PATH, keeps the environment, demands `--` before options of the inner command, then
*execs* lxc-attach with the argument list: no shell reads the arguments again, so a mistake shows.
Messages and exit codes are those of pve-container: 255 "not running!", 2 "does not exist"; `status`
knows running and stopped only.
"""

from __future__ import annotations

from pathlib import Path

_SHIM = r"""#!/bin/sh
PATH=/sbin:/bin:/usr/sbin:/usr/bin; export PATH
unset SSL_CERT_FILE SSL_CERT_DIR
lxcpath='@LXCPATH@'
verb=$1; [ $# -gt 0 ] && shift
fail() { echo "$2" >&2; exit "$1"; }
need() {
    case $1 in ''|*[!0-9]*) fail 255 "400 Parameter verification failed.
vmid: type check ('integer') failed - got '$1'";; esac
    [ -f "$lxcpath/$1/config" ] || fail 2 \
        "Configuration file 'nodes/$(hostname)/lxc/$1.conf' does not exist"
}
running() { [ "$(lxc-info -P "$lxcpath" -n "$1" -sH 2>/dev/null)" != STOPPED ]; }
case $verb in
exec)
    id=$1; [ $# -gt 0 ] && shift
    need "$id"
    if [ "$1" = -- ]; then shift; else
        for word; do case $word in -*) fail 255 "Unknown option: ${word#-}";; esac; done
    fi
    running "$id" || fail 255 "container '$id' not running!"
    exec lxc-attach -P "$lxcpath" -n "$id" --keep-env -- "$@" ;;
status)
    need "$1"
    if running "$1"; then echo "status: running"; else echo "status: stopped"; fi ;;
list)
    first=1
    for config in "$lxcpath"/*/config; do
        [ -f "$config" ] || continue
        id=$(basename "$(dirname "$config")")
        [ $first = 1 ] && printf '%-10s %-10s %-12s %-20s\n' VMID Status Lock Name
        first=0
        if running "$id"; then state=running; else state=stopped; fi
        printf '%-10s %-10s %-12s %-20s\n' "$id" "$state" "" "ct$id"
    done ;;
*) fail 255 "ERROR: unknown command 'pct $verb'" ;;
esac
"""


def write_pct(bin_dir: Path, lxcpath: str) -> Path:
    """The shim as `bin_dir/pct`."""
    path = bin_dir / "pct"
    path.write_text(_SHIM.replace("@LXCPATH@", lxcpath))
    path.chmod(0o755)
    return path
