"""What processes inside the sandbox do to themselves before any author code runs in them.

As a script it stands before the command that `sandbox_command` wraps. It may still be root then, so
it uses the standard library alone and runs where nothing of the author's can be imported.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys

UID = 65532
WORKSPACE = "RAYFINE_WORKSPACE"
"""The variable that tells a sandbox from the open: `BYTES PATH` of what a session may write to."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    *(0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000),
)
_OF_A_SESSION = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_NOSUID, _NODEV, _NOEXEC, _BIND = 2, 4, 8, 4096
_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUNDING = 1, 4, 24
_CAPABILITIES_V3 = 0x20080522
_SET_FLAGS, _UP = 0x8914, 1
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_NEW_KEYRING = 1
_BYTES_PER_FILE = 4096
# Of one session: nobody else is counted in its user namespace. Threads are processes here.
_PROCESSES = 512
_libc = ctypes.CDLL(None, use_errno=True)


def in_sandbox() -> bool:
    return WORKSPACE in os.environ


def enter_own_namespaces() -> None:
    """Go on as the first process of a session's own namespaces, without any capability.

    The process that called stays behind and ends the way this one ends: who kills it ends the whole
    session, whatever that has started, and who waits for it learns what happened.
    """
    size, _, workspace = os.environ[WORKSPACE].partition(" ")
    # To make a terminal device takes user 0; what it is called outside stays the same all along.
    _enter_users(_OF_A_SESSION, 0)
    child = os.fork()
    if child:
        _end_as(child)
    _furnish(int(size), workspace)
    _enter_users(0, UID)
    # A further user namespace would give back every capability, if only over itself.
    with open("/proc/sys/user/max_user_namespaces", "w") as most:
        most.write("0")
    _drop_capabilities()
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    # Last, since a change of rights undoes it.
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _enter_users(more: int, uid: int) -> None:
    """A new user namespace, and the ones in `more`; this user is called `uid` from now on."""
    users, groups = f"{uid} {os.getuid()} 1", f"{uid} {os.getgid()} 1"
    _call("unshare", _NEWUSER | more)
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _end_as(child: int) -> None:
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # no second core dump
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _furnish(size: int, workspace: str) -> None:
    """Processes, terminals, files and loopback that no other session sees."""
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    files = max(size // _BYTES_PER_FILE, 64)
    _mount("tmpfs", workspace, "tmpfs", _NOSUID | _NODEV, f"size={size},nr_inodes={files},mode=700")
    for place in ("/dev/shm", "/tmp"):
        # Not over the way to an environment that lies beneath it.
        if not os.listdir(place):
            _mount(workspace, place, "", _BIND)
    if os.getcwd() == workspace:
        os.chdir(workspace)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)


def _mount(source: str, place: str, kind: str, flags: int, options: str = "") -> None:
    words = (word.encode() for word in (source, place, kind))
    _call("mount", *words, flags, options.encode())


def _drop_capabilities() -> None:
    _drop_bounding()
    _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)())


def _drop_bounding() -> None:
    capability = 0
    while _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) == 0:
        capability += 1


def _leave_root() -> None:
    """Be another user for the kernel too: to it, root without capabilities still owns /proc/sys."""
    # bubblewrap has covered parts of its own, which would forbid sessions to have theirs.
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _drop_bounding()
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    _libc.prctl(_DUMPABLE, 1, 0, 0, 0)
    _enter_users(0, UID)
    _drop_capabilities()


def _leave_keyring() -> None:
    """The keys of who started the server are reached through the session keyring."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(number, _JOIN_NEW_KEYRING, None)


def _call(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def main(command: list[str]) -> None:
    """Become the command; without one, go all the way in, to show that it can be done."""
    _leave_keyring()
    if os.getuid() == 0:
        _leave_root()
    if command:
        os.execv(command[0], command)
    enter_own_namespaces()


if __name__ == "__main__":
    main(sys.argv[1:])
