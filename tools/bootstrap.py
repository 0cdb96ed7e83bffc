# ruff: noqa: UP031, RUF005, SIM105, SIM905 -- any python3 must be able to read this file, to be told that it is too old
"""What runs first in the single file `kubectl-runs`: unpack it, once, for this Python; then do what was asked.

Compiled modules cannot be imported from within a file. So the first call unpacks what this Python needs into a folder
of the user's cache, named after the build; whatever is there under that name is whole. Later calls find it there.
The same file is every program of Tenure: which one is meant is told by the name it is called by, through a link.
"""

import os
import shutil
import sys
import tempfile
import time
import zipfile

BUILD, SYSTEM, VERSION = "@BUILD@", "@SYSTEM@", "@VERSION@"
PYTHONS = "@PYTHONS@".split()
PROGRAMS = dict(pair.split("=") for pair in "@PROGRAMS@".split())
OLD_DAYS = 30


def main():
    python = "%d.%d" % sys.version_info[:2]
    if python not in PYTHONS or sys.implementation.name != "cpython":
        return another(python)
    folder = os.path.join(cache(), "%s-%s" % (BUILD, python))
    temporary = None
    if not os.path.isdir(folder):
        folder, temporary = unpacked(folder, python)
    try:
        sys.path.insert(0, folder)
        if temporary is None:
            touch(folder)
        return run()
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def run():
    try:
        from tenure.cli import main as programs
    except ImportError as error:
        return refuse("it cannot be loaded here (%s): this file is for %s" % (error, SYSTEM))
    return getattr(programs, PROGRAMS.get(os.path.basename(sys.argv[0]), "kubectl_runs"))()


def cache():
    given = os.environ.get("TENURE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(given or os.path.join(base, "tenure"), "program")


def unpacked(folder, python):
    """Unpack beside the place and move there when it is whole; where nothing can be kept, for this call only."""
    try:
        os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
        work = tempfile.mkdtemp(prefix=".", dir=os.path.dirname(folder))
    except OSError:
        work = tempfile.mkdtemp(prefix="tenure-")
        extract(work, python)
        return work, work
    try:
        extract(work, python)
        os.rename(work, folder)
    except OSError:
        shutil.rmtree(work, ignore_errors=True)
        if not os.path.isdir(folder):  # another call was not faster: something is wrong
            raise
    remove_old(os.path.dirname(folder))
    return folder, None


def extract(folder, python):
    with zipfile.ZipFile(os.path.dirname(__file__)) as all_of_it:
        for name in ("any.zip", "%s.zip" % python):
            with all_of_it.open(name) as part, zipfile.ZipFile(part) as content:
                content.extractall(folder)


def touch(folder):
    try:
        os.utime(folder)
    except OSError:
        pass


def remove_old(base):
    """Builds that nobody has called for long, and what an interrupted call left."""
    for name in os.listdir(base):
        path = os.path.join(base, name)
        try:
            if time.time() - os.stat(path).st_mtime > OLD_DAYS * 86400:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass


def another(python):
    """Go on with a Python that fits, if there is one beside the one that was called."""
    for version in PYTHONS:
        path = shutil.which("python%s" % version)
        if path and "TENURE_REEXEC" not in os.environ:
            os.environ["TENURE_REEXEC"] = "1"
            os.execv(path, [path] + sys.argv)
    return refuse("it runs with CPython %s to %s, and python3 is %s %s" % (
        PYTHONS[0], PYTHONS[-1], sys.implementation.name, python))  # fmt: skip


def refuse(why):
    sys.stderr.write("kubectl-runs %s: %s\n" % (VERSION, why))
    return 1


if __name__ == "__main__":
    sys.exit(main())
