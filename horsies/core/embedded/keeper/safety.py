"""Which directories are safe for the files of a server, and how files in them are opened.

Whoever can write in a directory can put a link in the place of any file in it, and whoever can rename a directory on
the way can exchange all of it. If root then writes there, it writes wherever the other user wants. So a directory is
refused before anything in it is touched, if it belongs to another user or if others can write in it. Root must also be
able to trust each directory and each link on the way. No link is followed for a file of ours, and owners and modes are
changed through descriptors only.
"""

import contextlib
import errno
import os
import pwd
import shlex
import stat
from pathlib import Path

MOST_LINKS = 40  # as many as the kernel follows
LARGEST_TEXT = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not make us wait


class Failure(Exception):
    """The server cannot be started; `detail` is the message of PostgreSQL or the system, `way_out` what to do."""

    def __init__(self, message: str, detail: str = "", way_out: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.way_out = way_out


def is_root() -> bool:
    return os.geteuid() == 0


def real_path(path: Path) -> Path:
    """Where the path leads; its end need not exist. Under root, all directories and links on the way must be root's.

    Each step is checked before the next is looked at. What was found safe can be exchanged by root only, so the answer
    is still true when it is used.
    """
    path = path.expanduser().absolute()
    if not is_root():
        return path.resolve()
    here = Path("/")
    ahead = [*reversed(path.parts[1:])]
    links = 0
    while ahead:
        _require_safe_ancestor(here, here.lstat(), path)
        step = here / ahead.pop()
        try:
            found = step.lstat()
        except FileNotFoundError:
            return Path(os.path.normpath(step.joinpath(*reversed(ahead))))
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            _require_roots(f"the link {step}", found, path)
            target = Path(os.readlink(step))
            here = Path("/") if target.is_absolute() else here
            ahead += [part for part in reversed(target.parts) if part != "/"]
        else:
            here = here.parent if step.name == ".." else step
    return here


def make_directory(path: Path) -> Path:
    """Create the directory unless it exists, with its parents; its real path."""
    real = real_path(path)
    if os.path.lexists(real):
        return real
    for parent in [each for each in reversed(real.parents) if not each.is_dir()]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent, 0o755)
        real_path(real)  # it may have been created by others in the meantime
    with contextlib.suppress(FileExistsError):
        # The server's user must get through, whatever the umask.
        mode = 0o711 if is_root() else 0o700
        os.mkdir(real, mode)
        fd = open_directory(real)
        os.fchmod(fd, mode)
        os.close(fd)
    return real


def open_directory(path: Path) -> int:
    """A descriptor of this directory, which must be ours, and which others must not be able to write."""
    _require_ours(path, path.lstat())  # the better message, if it cannot even be opened
    fd = os.open(path, _DIRECTORY)
    try:
        _require_ours(path, os.fstat(fd))
    except Failure:
        os.close(fd)
        raise
    return fd


def open_file(directory: int, name: str, flags: int) -> int:
    """Open a file of ours in this directory. It must be an ordinary file that nobody else has made."""
    try:
        fd = os.open(name, flags | _FILE, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_our_file(name) from None
        raise
    found = os.fstat(fd)
    # A second name of a file of root's may be anywhere.
    is_ours = found.st_uid == os.geteuid() and (found.st_nlink <= 1 or not is_root())
    if not stat.S_ISREG(found.st_mode) or not is_ours:
        os.close(fd)
        raise _not_our_file(name)
    return fd


def read_text(path: Path) -> str:
    """A small file in a directory of the server's user. `FileNotFoundError` if there is no such ordinary file."""
    try:
        fd = os.open(path, os.O_RDONLY | _FILE)
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not an ordinary file", str(path))
        return file.read(LARGEST_TEXT).decode(errors="replace")


def give_directory(path: Path, account: tuple[int, int], mode: int = 0o700) -> None:
    """Create a private directory of this user if it does not exist. The parent must be a directory that the caller can
    trust."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    fd = os.open(path, _DIRECTORY)
    try:
        found = os.fstat(fd)
        if is_root() and found.st_uid == 0:
            os.fchown(fd, *account)
        elif found.st_uid != account[0]:
            raise Failure(
                f"{path} belongs to {user_name(found.st_uid)}, not to the user of the server",
                way_out="find out who made it; then remove it, or give it to the right user",
            )
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def give_tree(top: Path, user: int, account: tuple[int, int]) -> None:
    """Give this directory, and all files of this user below it, to another. Links and files with a second name are left
    as they are, because what they lead to may be somebody else's."""
    for _, _, names, fd in os.fwalk(top):
        os.fchown(fd, *account)
        for name in names:
            with contextlib.suppress(OSError):
                file = os.open(name, os.O_RDONLY | _FILE, dir_fd=fd)
                found = os.fstat(file)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == user:
                    os.fchown(file, *account)
                os.close(file)


def open_to_all(top: Path) -> None:
    """Let everybody read what is below this directory, and run what its owner can run."""
    for _, _, names, fd in os.fwalk(top):
        os.fchmod(fd, 0o755)
        for name in names:
            if not stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                file = os.open(name, os.O_RDONLY | _FILE, dir_fd=fd)
                os.fchmod(file, 0o755 if os.fstat(file).st_mode & 0o100 else 0o644)
                os.close(file)


def user_name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _require_ours(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise _refusal(path, "it is not a directory", "")
    if found.st_uid != os.geteuid():
        owner = user_name(found.st_uid)
        raise _refusal(path, f"it belongs to {owner}", f"run this as {owner}")
    if found.st_mode & 0o022:
        raise _refusal(path, f"other users can write in it ({_mode(found)})", f"chmod go-w {shlex.quote(str(path))}")


def _require_safe_ancestor(directory: Path, found: os.stat_result, path: Path) -> None:
    """For root: nobody else may be able to exchange what is in this directory."""
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    _require_roots(str(directory), found, path)
    others = 0o002 if found.st_gid == 0 else 0o022
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        raise _refusal(
            path,
            f"other users can write in {directory} ({_mode(found)}), and root would write wherever they want",
            f"chmod go-w {shlex.quote(str(directory))}",
        )


def _require_roots(what: str, found: os.stat_result, path: Path) -> None:
    if found.st_uid != 0:
        owner = user_name(found.st_uid)
        raise _refusal(
            path, f"{what} belongs to {owner}, and root would write wherever {owner} wants", f"run this as {owner}"
        )


def _refusal(path: Path, reason: str, first: str) -> Failure:
    example = "such as embedded:/var/lib/horsies/NAME" if is_root() else "one of your own"
    ways = [first, f"name another directory, {example}", "or set DATABASE_URL to your own PostgreSQL server"]
    return Failure(f"the embedded server cannot use {path}: {reason}", way_out="; ".join(way for way in ways if way))


def _not_our_file(name: str) -> Failure:
    return Failure(
        f"the embedded server cannot use its file {name}",
        "it is a link, or it was made by another user",
        "find out who made it, and remove it",
    )


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"
