"""The last good state on disk: written atomically, so that a reader finds the old one or the new one, never a part.

What is kept is the sealed envelope as it came; loading checks its signature again, so a file is trusted no more than
Valkey is.
"""

import os
from pathlib import Path


def store(path: Path, data: bytes) -> None:
    """Replace the file by `data`: temporary file, fsync, rename, fsync of the directory. Blocks: call it in a thread.

    Raises:
        OSError: the disk is full or not writable; what was there before is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def load(path: Path) -> bytes | None:
    """The file's content, or None where there is none that can be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
