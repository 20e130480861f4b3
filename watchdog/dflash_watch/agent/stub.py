"""How the agent gets to the other side: a constant shell script and the stub that it runs.

Both are texts without anything from outside in them; the agent's code and its configuration
follow over standard input. Operator's side; the texts run on Python 3.8 and POSIX sh.
"""

from __future__ import annotations

EXIT_UNFIT_PYTHON = 95
EXIT_NO_PYTHON = 97
EXIT_BROKEN_INPUT = 98
EXIT_AGENT_FAILED = 99

# Reads "<bytes of zipapp> <bytes of config>\n", both parts, and starts the agent. The code lies in
# a memory file, else (old C libraries) is imported straight from the bytes. A Python that will not
# do says so before it has read anything, so that the next one can be tried on the same input; one
# that fails later ends with 99. No single quotes: the text stands between two of them.
STUB = """
import os, sys
try: import ctypes, hashlib, json, zlib
except ImportError: os._exit(95)
if sys.version_info < (3, 8): os._exit(95)
def take(n):
    b = b""
    while len(b) < n:
        p = os.read(0, min(n - len(b), 1 << 20))
        if not p: sys.stderr.write("DFLASH-BROKEN-INPUT\\n"); os._exit(98)
        b += p
    return b
def in_memory():
    import importlib.abc, importlib.util, io, zipfile
    a = zipfile.ZipFile(io.BytesIO(z)); names = set(a.namelist())
    class F(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            f = name.replace(".", "/")
            for p, k in ((f + "/__init__.py", True), (f + ".py", False)):
                if p in names: return importlib.util.spec_from_loader(
                    name, self, origin=p, is_package=k)
        def create_module(self, spec): return None
        def exec_module(self, m):
            p = m.__spec__.origin
            exec(compile(a.read(p), p, "exec"), m.__dict__)
    sys.meta_path.insert(0, F())
try:
    h = b""
    while not h.endswith(b"\\n") and len(h) < 64: h += take(1)
    try: n, m = [int(w) for w in h.split()]
    except ValueError: sys.stderr.write("DFLASH-BROKEN-INPUT\\n"); os._exit(98)
    z, c = take(n), take(m)
    d = hashlib.sha256(z).hexdigest()
    try:
        f = os.memfd_create("dflash-agent")
        v = memoryview(z)
        while v: v = v[os.write(f, v):]
        sys.path.insert(0, "/proc/self/fd/%d" % f)
        import dflash_watch.agent
    except (AttributeError, OSError, ImportError):
        in_memory()
    del z
    from dflash_watch.agent.__main__ import main
    end = main(c, d)
except Exception as e:
    end = 99
    try: import traceback; traceback.print_exc()
    except Exception: sys.stderr.write(type(e).__name__ + "\\n")
sys.exit(end)
"""

# Statuses of an interpreter that never came to the agent (cannot run, cannot start, too old, lacks
# modules): the next one is tried. Asking each first whether it fits would start Python twice.
ENTRY_SCRIPT = (
    """LC_ALL=C; export LC_ALL; unset PYTHONHOME PYTHONPATH PYTHONSTARTUP
go() {
 "$1" -I -S -B -c '"""
    + STUB
    + """'
 s=$?
 case $s in 1|2|95|126|127) ;; *) exit $s ;; esac
}
for p in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 \\
 /opt/*/bin/python3 /root/miniconda3/bin/python3 "$HOME"/miniconda3/bin/python3 \\
 "$HOME"/.venv/bin/python3 /usr/bin/python3.? /usr/bin/python3.?? \\
 /usr/local/bin/python3.? /usr/local/bin/python3.??; do
 command -v "$p" >/dev/null 2>&1 && go "$p"
done
for e in /proc/[0-9]*/exe; do
 p=$(readlink "$e" 2>/dev/null) || continue
 case "${p##*/}" in python*|pypy*) ;; *) continue ;; esac
 [ -x "$p" ] && go "$p"
 [ -x "$e" ] && go "$e"
done
echo DFLASH-NO-PYTHON >&2
exit 97
"""
)
"""For `sh -c`: one constant argument, quoted as a whole by the transport."""
