"""The sandbox: what cannot be done in it, what can, how it ends, and where it is refused."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import ConfigError
from rayfine_env.server.sandbox import Sandbox, sandbox_available
from tests.server.escapes import PRELUDE, REACHING_OUT, TAKING_RIGHTS, WRITING, outside

MEGABYTE = 1 << 20
START = f"""{PRELUDE}
import json, signal
from rayfine_env.server.namespaces import enter_own_namespaces as enter
"""
TRY_ALL = """
attempts, known = json.loads(sys.argv[1])
print(json.dumps({name: outcome(attempt, known) for name, attempt in attempts.items()}))
"""
Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    """Without a sandbox there is nothing to test; a CI run does not let such a skip pass."""
    if missing := sandbox_available():
        pytest.skip(missing)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in it that a sandbox may show."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "env").mkdir(mode=0o755)
    return folder


def command(place: Path, script: str, *args: str) -> list[str]:
    file = place / "env" / f"script{time.monotonic_ns()}.py"
    file.write_text(START + script)
    sandbox = Sandbox.around(str(place / "env"), MEGABYTE)
    return sandbox.command([sys.executable, str(file), *args])


def inside(place: Path, script: str, *args: str) -> Any:
    """What a script in a sandbox printed."""
    run = subprocess.run(command(place, script, *args), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


# -- what cannot be done


@pytest.fixture(scope="module")
def outcomes(place: Path) -> Outcomes:
    """What became of attempts: in a session, in the process that forks sessions, and outside."""
    with outside(place) as known:
        out = json.dumps([REACHING_OUT, known])
        writing = json.dumps([REACHING_OUT | WRITING, known])
        everything = json.dumps([REACHING_OUT | WRITING | TAKING_RIGHTS, known])
        control = place / "control.py"
        control.write_text(START + TRY_ALL)
        return {
            "session": inside(place, "enter()\n" + TRY_ALL, everything),
            "zygote": inside(place, TRY_ALL, writing),
            "outside": json.loads(subprocess.check_output([sys.executable, control, out])),
        }


@pytest.mark.parametrize("attempt", REACHING_OUT | WRITING | TAKING_RIGHTS)
def test_a_session_cannot(outcomes: Outcomes, attempt: str) -> None:
    assert outcomes["session"][attempt] == "refused"


@pytest.mark.parametrize("attempt", REACHING_OUT | WRITING)
def test_the_process_that_imports_the_environment_cannot(outcomes: Outcomes, attempt: str) -> None:
    assert outcomes["zygote"][attempt] == "refused"


def test_outside_of_a_sandbox_the_same_attempts_succeed(outcomes: Outcomes) -> None:
    # Systems guard some of it by themselves, and a home may be empty.
    guarded = {"read the password file", "reach the host's root", "read the home directory"}
    guarded |= {"trace a process of the host", "read its memory"}
    refused = {name for name, became in outcomes["outside"].items() if became == "refused"}
    assert refused <= guarded


TWO_SESSIONS = """
import pty
apart = sys.argv[1] == "apart"
workspace = os.environ["HOME"]
attempts = {
    "its files": "open(f'{workspace}/canary')",
    "its shared memory": "open('/dev/shm/canary')",
    "its SysV memory": "libc('shmget', 4711, 0, 0)",
    "its port": "socket.create_connection(('127.0.0.1', 4000), 5)",
    "its abstract socket": "connect(chr(0) + 'canary')",
    "its terminal": "open('/dev/pts/0')",
    "its processes": "assert [p for p in os.listdir('/proc') if p.isdigit()] != ['1']",
    "its life": "os.kill(2, 0)",
}

def fork(work):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        if apart:
            enter()
        work(writer)
        os._exit(0)
    os.close(writer)
    return reader

def live(writer):
    for folder in (workspace, "/dev/shm"):
        open(f"{folder}/canary", "w").write("canary")
    listener = socket.create_server(("127.0.0.1", 4000))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(chr(0) + "canary")
    unix.listen()
    pty.openpty()
    libc("shmget", 4711, 4096, 0o1666)
    os.write(writer, b"ready")
    signal.pause()

def spy(writer):
    found = {name: outcome(attempt, {}) for name, attempt in attempts.items()}
    os.write(writer, json.dumps(found).encode())

if not apart:
    enter()
assert os.read(fork(live), 5) == b"ready"
print(os.read(fork(spy), 65536).decode())
"""


@pytest.mark.parametrize(("how", "became"), [("apart", "refused"), ("together", "done")])
def test_one_session_has_nothing_of_another(place: Path, how: str, became: str) -> None:
    found = inside(place, TWO_SESSIONS, how)
    assert len(found) == 8
    assert found == dict.fromkeys(found, became)


def test_a_session_has_no_key_of_who_started_it(place: Path) -> None:
    numbers = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    search = f"libc('syscall', {numbers[1]}, 10, -3, b'user', b'rayfine-test', 0)"
    script = command(place, f"enter()\nprint(outcome({search!r}, {{}}))")
    starter = (
        START
        + f"""
import subprocess
libc('syscall', {numbers[1]}, 1, None)
libc('syscall', {numbers[0]}, b'user', b'rayfine-test', b'secret', 6, -3)
print(outcome({search!r}, {{}}), subprocess.check_output({script!r}, text=True))
"""
    )
    (place / "starter.py").write_text(starter)
    said = subprocess.check_output([sys.executable, place / "starter.py"], text=True)
    assert said.split() == ["done", "refused"]


# -- what can be done

USES = """
import getpass, multiprocessing, pty, ssl, subprocess, tempfile
enter()
os.write(pty.openpty()[1], b"x")
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
with tempfile.NamedTemporaryFile("w") as file:
    file.write("x")
ssl.create_default_context()
multiprocessing.Lock()
try:
    open(os.path.expanduser("~/large"), "wb").write(bytes(2 << 20))
except OSError as exc:
    full = exc.strerror
print(json.dumps({
    "ids": [os.getpid(), os.getuid(), os.getgid()],
    "names": [getpass.getuser(), subprocess.getoutput("whoami"), socket.gethostname()],
    "full": full,
    "input": sys.stdin.read(),
    "variables": sorted(os.environ),
}))
"""


def test_a_session_is_like_a_machine_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary")
    found = inside(place, USES)
    assert found["ids"] == [1, 65532, 65532]
    assert found["names"] == ["rayfine"] * 3
    assert found["full"] == "No space left on device"
    assert found["input"] == ""
    assert "HF_TOKEN" not in found["variables"]


def test_relative_paths_hold_where_the_environment_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "env" / "data.json").write_text("[1]")
    for here, there in ((place / "env", "data.json"), (place, "env/data.json")):
        monkeypatch.chdir(here)
        assert inside(place, f"enter()\nprint(open({there!r}).read())") == [1]


# -- how it ends


@pytest.mark.parametrize(
    ("ending", "status"),
    [("sys.exit(3)", 3), ("ctypes.string_at(0)", -signal.SIGSEGV)],
)
def test_who_waits_learns_how_a_session_ended(place: Path, ending: str, status: int) -> None:
    script = f"""
pid = os.fork()
if pid == 0:
    enter()
    {ending}
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert inside(place, script) == status


# A reader of the pipe sees its end when the last process that holds it is gone.
LEAVE_A_DAEMON = """
import subprocess
enter()
subprocess.Popen(["setsid", "sleep", "1000"], pass_fds=[int(sys.argv[1])])
os.write(int(sys.argv[1]), b"ready")
signal.pause()
"""


def test_a_killed_session_takes_everything_with_it(place: Path) -> None:
    script = f"""
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    sys.argv = ["", str(writer)]
    exec({LEAVE_A_DAEMON!r})
os.close(writer)
os.read(reader, 5)
os.kill(pid, signal.SIGKILL)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps([os.read(reader, 1).decode(), status]))
"""
    assert inside(place, script) == ["", -signal.SIGKILL]


def test_a_killed_server_takes_the_sandbox_with_it(place: Path) -> None:
    reader, writer = os.pipe()
    sandboxed = command(place, LEAVE_A_DAEMON, str(writer))
    server = f"import subprocess; subprocess.run({sandboxed!r}, close_fds=False)"
    process = subprocess.Popen([sys.executable, "-c", server], pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 5) == b"ready"
    process.kill()
    process.wait()
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_what_is_printed_comes_out_but_cannot_be_read_back(place: Path) -> None:
    attempt = "open('/proc/self/fd/1').read(1)"
    script = f"import sys; sys.stderr.write(outcome({attempt!r}, {{}})); print(' printed')"
    relaying = f"""
import os, subprocess
from rayfine_env.server.sandbox import relay
output = relay()
subprocess.run({command(place, script)!r}, stdout=output, stderr=output)
"""
    run = subprocess.run([sys.executable, "-c", relaying], stderr=subprocess.PIPE, text=True)
    assert run.stderr == "refused printed\n"


# -- where it is refused


def test_too_much_to_show_is_refused() -> None:
    for wide in (Path.home(), Path.home().parent, Path(tempfile.gettempdir())):
        with pytest.raises(ConfigError, match="a directory of its own"):
            Sandbox.around(str(wide), MEGABYTE)


def test_what_the_sandbox_could_not_read_is_refused(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    if os.getuid() == 0:
        with pytest.raises(ConfigError, match="chmod -R o\\+rX"):
            Sandbox.around(str(closed), MEGABYTE)
    else:
        assert Sandbox.around(str(closed), MEGABYTE).readable == (closed,)


def test_a_target_keeps_its_name_inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = place / "root" / "pkg"
    (package / "sub").mkdir(parents=True)
    for file in ("__init__.py", "sub/__init__.py", "sub/env.py"):
        (package / file).touch()
    monkeypatch.chdir(place / "root")
    relative = Sandbox.around("pkg/sub/env.py:Game", MEGABYTE)
    assert relative.target == f"{package}/sub/env.py:Game"
    assert relative.readable == (package,)
    dotted = Sandbox.around("pkg.sub.env:Game", MEGABYTE)
    assert dotted.target == "pkg.sub.env:Game"
    assert dotted.readable == (package,)
    assert Sandbox.around("nowhere.at_all", MEGABYTE).readable == ()


REFUSED = """
from rayfine_env.errors import InfraError
from rayfine_env.server.sandbox import Sandbox
try:
    Sandbox.around("echo", 1)
except InfraError as exc:
    print(exc, exc.phase, exc.retryable)
"""
NO_NAMESPACES = ("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns")


def test_a_machine_without_bubblewrap_is_told_so() -> None:
    run = [sys.executable, "-c", REFUSED]
    said = subprocess.check_output(run, env={"PATH": "/nowhere"}, text=True)
    assert "apt-get install bubblewrap" in said
    assert said.endswith("start False\n")


def test_a_machine_without_user_namespaces_is_told_so() -> None:
    said = subprocess.check_output([*NO_NAMESPACES, sys.executable, "-c", REFUSED], text=True)
    assert "is not to be had: this machine lets none be made (" in said
    assert said.endswith("start False\n")
