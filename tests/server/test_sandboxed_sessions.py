"""Sessions with isolation="sandbox", end to end: kept in, kept apart, and ended."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayfine_env import load_env
from rayfine_env.errors import InfraError, ResourceLimit, SessionLost, Timeout, Unsupported
from rayfine_env.launch import EnvironmentWrapper
from rayfine_env.server.sandbox import sandbox_available
from tests.contracts.processes import words
from tests.server.escapes import PRELUDE, REACHING_OUT, TAKING_RIGHTS, WRITING, outside

Handle = EnvironmentWrapper[Any, Any, Any]
ENV = f"""{PRELUDE}
from typing import Any
import array, asyncio, signal, subprocess, threading, time

BEGAN_AS = os.getpid()
print("imported")

def attempt(statement: str, known: dict[str, Any] = {{}}) -> str:
    return outcome(statement, known)

def run(code: str) -> Any:
    scope = {{**globals()}}
    exec(code, scope)
    return scope.get("out")

async def later(value: str) -> str:
    await asyncio.sleep(0.01)
    return value
"""


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    """Without a sandbox there is nothing to test; a CI run does not let such a skip pass."""
    if missing := sandbox_available():
        pytest.skip(missing)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "env").mkdir(mode=0o755)
    (folder / "env" / "env.py").write_text(ENV)
    return folder


@pytest.fixture(scope="module")
def env(place: Path) -> Iterator[Handle]:
    with started(place / "env") as handle:
        yield handle


@contextlib.contextmanager
def started(folder: Path, **options: Any) -> Iterator[Handle]:
    handle = load_env(folder, **{"isolation": "sandbox", **options})
    try:
        yield handle
    finally:
        handle.cleanup()


def until(true: Callable[[], Any]) -> bool:
    """Whether it came true within a time that only a broken program needs."""
    limit = time.monotonic() + 10
    while not true() and time.monotonic() < limit:
        time.sleep(0.01)
    return bool(true())


def family(env: Handle) -> list[psutil.Process]:
    mine = psutil.Process().children()
    keeper = next(p for p in mine if env.env_id in " ".join(words(p.pid)))
    return [keeper, *keeper.children(recursive=True)]


def sleepers(env: Handle) -> int:
    return sum("4711" in words(p.pid) for p in family(env))


# -- kept in


@pytest.fixture(scope="module")
def outcomes(env: Handle, place: Path) -> dict[str, str]:
    with outside(place) as known, env.session() as session:
        attempts = REACHING_OUT | WRITING | TAKING_RIGHTS
        return {name: session.attempt(code, known) for name, code in attempts.items()}


@pytest.mark.parametrize("attempt", REACHING_OUT | WRITING | TAKING_RIGHTS)
def test_a_session_cannot(outcomes: dict[str, str], attempt: str) -> None:
    assert outcomes[attempt] == "refused"


def test_an_untrusted_project_is_sandboxed_unasked(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir(mode=0o755)
    (folder / "env.py").write_text("import os\ndef user() -> int:\n    return os.getuid()\n")
    (folder / "pyproject.toml").write_text('[tool.rayfine]\nname = "x"\nuntrusted = true\n')
    env = load_env(folder)
    try:
        assert env.user() == 65532
    finally:
        env.cleanup()


def test_a_machine_that_cannot_give_it_refuses(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InfraError, match="apt-get install bubblewrap") as caught:
        load_env(place / "env", isolation="sandbox")
    assert caught.value.phase == "start"
    assert not caught.value.retryable


# -- kept apart


def test_variables_and_files_stay_in_their_session(env: Handle) -> None:
    with env.session() as one, env.session() as other:
        one.setup(TOKEN="canary")
        one.run("open(os.path.expanduser('~/canary'), 'w').write('canary')")
        assert one.run("out = os.environ['TOKEN'] + open('canary').read()") == "canary" * 2
        seen = other.run(
            "import glob\n"
            "out = [os.environ.get('TOKEN'), os.listdir(os.path.expanduser('~')),"
            " [p for p in os.listdir('/proc') if p.isdigit()]]"
        )
        assert seen == [None, [], ["1"]]


def test_sessions_share_no_descriptor_but_their_output(env: Handle) -> None:
    show = (
        "out = sorted({os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')"
        " if os.path.islink(f'/proc/self/fd/{fd}')})"
    )
    with env.session() as one, env.session() as other:
        output = one.run("out = os.readlink('/proc/self/fd/1')")
        shared = {*one.run(show)} & {*other.run(show)}
    assert shared - {output, "anon_inode:[eventpoll]", "/dev/null"} <= {"/proc/1/fd"}


def test_the_numbers_of_other_sessions_are_out_of_reach(env: Handle) -> None:
    maps = "out = [line.split()[0] for line in open('/proc/self/maps') if 'rayfine-slots' in line]"
    with env.session() as session:
        (mapped,) = session.run(maps)
    begin, end = (int(at, 16) for at in mapped.split("-"))
    assert end - begin == 4096


# -- served like any other


def test_it_behaves_as_sessions_do(env: Handle) -> None:
    with env.session() as session:
        assert session.later("x") == "x"
        session.setup(COLOUR="red")
        assert session.run("out = os.environ['COLOUR']") == "red"


def test_a_sandboxed_session_is_not_forked(env: Handle) -> None:
    with env.session() as session, pytest.raises(Unsupported, match="sandbox"):
        session.fork(2)


def test_a_module_with_threads_is_imported_inside(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir(mode=0o755)
    thread = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    (folder / "env.py").write_text(ENV + thread)
    with started(folder) as env:
        assert env.run("out = [BEGAN_AS, os.getpid(), os.getuid()]") == [1, 1, 65532]


def test_what_is_printed_reaches_the_log(env: Handle) -> None:
    log = next(Path(a) for a in words(family(env)[0].pid) if a.endswith(env.env_id)) / "log"
    with env.session() as session:
        session.run("print('said aloud', flush=True)")
        assert until(lambda: "said aloud" in log.read_text())


# -- ended


def test_a_late_session_ends_with_all_it_started(env: Handle) -> None:
    with env.session() as other:
        session = env.session()
        session.run("subprocess.Popen(['setsid', 'sleep', '4711'])")
        assert sleepers(env) == 1
        with pytest.raises(Timeout):
            session.call("run", ("while True: pass",), {}, timeout=0.3)
        assert until(lambda: sleepers(env) == 0)
        with pytest.raises(SessionLost):
            session.run("out = 1")
        session.detach()
        assert other.run("out = 1") == 1


TRICKS = {
    "cuts the tie to its parent": "libc('prctl', 1, 0, 0, 0, 0)",
    "claims to be another process": """
import msgspec
pidfd = os.pidfd_open(subprocess.Popen(['sleep', '4711']).pid)
word = msgspec.msgpack.encode({'kind': 'here', 'number': 1})
for fd in range(3, 30):
    try:
        door = socket.socket(fileno=os.dup(fd))
        if door.type == socket.SOCK_SEQPACKET:
            socket.send_fds(door, [word], [pidfd])
    except OSError:
        pass
""",
    "ignores every signal": """
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
""",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_outlives_a_deadline(env: Handle, trick: str) -> None:
    before = len(family(env))
    session = env.session()
    with pytest.raises(Timeout):
        session.call("run", (TRICKS[trick] + "\nwhile True: time.sleep(9)",), {}, timeout=0.3)
    session.detach()
    # Spares that were not there yet may have come since.
    assert until(lambda: len(family(env)) <= before + 2)
    assert until(lambda: sleepers(env) == 0)


def test_a_session_that_talks_nonsense_ends_alone(env: Handle) -> None:
    shout = TRICKS["claims to be another process"].replace("[word]", "[b'nonsense']")
    session = env.session()
    with pytest.raises(InfraError):
        session.run(shout + "\ntime.sleep(9)")
    session.detach()
    with env.session() as other:
        assert other.run("out = 1") == 1


@pytest.mark.promise("R1")
@pytest.mark.parametrize("bomb", ["x = bytearray(8 << 30)", "x = []\nwhile True: x += [x] * 9**6"])
def test_a_memory_bomb_is_a_limit_that_was_met(env: Handle, bomb: str) -> None:
    with env.session() as session:
        with pytest.raises(ResourceLimit):
            session.run(bomb)
        assert session.run("out = 1") == 1


@pytest.mark.promise("R1")
def test_a_fork_bomb_stays_in_its_session(env: Handle) -> None:
    bomb = """
made = []
try:
    while len(made) < 5000:
        made.append(os.posix_spawn('/bin/sleep', ['sleep', '4711'], {}))
except OSError:
    out = len(made)
"""
    with env.session() as session, env.session() as other:
        assert session.run(bomb) < 512
        assert other.run("out = subprocess.getoutput('echo 1')") == "1"
    assert until(lambda: sleepers(env) == 0)


def test_nothing_is_left_of_an_instance(place: Path) -> None:
    with started(place / "env") as env:
        env.run("subprocess.Popen(['setsid', 'sleep', '4711'])")
        processes = family(env)
    assert until(lambda: not any(p.is_running() for p in processes))


def test_nothing_is_left_when_the_server_is_killed(place: Path) -> None:
    with started(place / "env") as env:
        env.run("subprocess.Popen(['setsid', 'sleep', '4711'])")
        processes = family(env)
        front = next(p for p in processes if "rayfine_env.server" in words(p.pid))
        front.kill()
        assert until(lambda: not any(p.is_running() for p in processes[1:]))


def test_a_lost_zygote_is_replaced(place: Path) -> None:
    with started(place / "env") as env:
        env.run("out = 1")
        zygote = next(
            p
            for p in family(env)
            if p.name() != "bwrap" and "rayfine_env.server.zygote" in words(p.pid)
        )
        zygote.kill()
        assert until(lambda: not zygote.is_running())
        assert until(lambda: is_lost(env))
        assert until(lambda: user_of_a_new_session(env) == 65532)


def is_lost(env: Handle) -> bool:
    try:
        env.run("out = 1")
    except (InfraError, SessionLost):
        return True
    return False


def user_of_a_new_session(env: Handle) -> int | None:
    """Sessions that were forked ahead have died too, and may not be known to have yet."""
    with contextlib.suppress(InfraError), env.session() as session:
        found: int = session.run("out = os.getuid()")
        return found
    return None
