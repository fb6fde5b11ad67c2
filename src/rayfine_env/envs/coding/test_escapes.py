"""Ways out of the coding environment, each tried from an agent's code in the sandbox."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import EnvironmentWrapper, load_env

from .env import CodeObservation

Coding = EnvironmentWrapper[Any, Any, Any]
HERE = str(Path(__file__).parent)
# Code that gets out prints OUT; `secret` is a file of the host's, `port` one of its listeners.
ATTEMPTS = {
    "read a file of the host": "open(secret)",
    "read the accounts": "open('/etc/passwd')",
    "list the home directory": "os.listdir('/root')",
    "write to the system": "open('/usr/x', 'w')",
    "read the answers": f"open({HERE + '/tasks.py'!r})",
    "import the answers": "import rayfine_env.envs.coding.tasks",
    "read the answers from memory": "open('/proc/1/mem', 'rb')",
    "read the variables of the environment": "open('/proc/1/environ').read()",
    "trace the environment": "assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "signal the environment": "os.kill(os.getppid(), 0)",
    "end the environment": "os.kill(1, 9)",
    "connect to the host": "socket.create_connection(('127.0.0.1', port), 2)",
    "connect to the internet": "socket.create_connection(('192.0.2.1', 80), 2)",
    "listen": "socket.create_server(('127.0.0.1', 0))",
    "become root": "os.setuid(0)",
    "have namespaces": "assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "raise a limit": "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "by way of another program": "subprocess.run(['cat', secret], check=True)",
}


@pytest.fixture(scope="module")
def coding() -> Iterator[Coding]:
    with load_env(HERE, env_vars={"CODING_SECONDS": "20"}) as env:
        yield env


def run(env: Coding, code: str) -> CodeObservation:
    return CodeObservation(**env.step({"code": code}).observation)


def test_every_attempt_fails(coding: Coding, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    coding.reset()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        known = f"secret, port = {str(secret)!r}, {port}\n"
        run(coding, f"import ctypes, os, resource, socket, subprocess\n{known}")
        for name, attempt in ATTEMPTS.items():
            seen = run(coding, f"{attempt}\nprint('OUT')")
            assert (seen.exit_code, seen.stdout) == (1, ""), f"{name}: {seen}"
    assert run(coding, "print('still here')").stdout == "still here\n"


def test_a_memory_bomb_is_an_exception(coding: Coding) -> None:
    coding.reset()
    assert "MemoryError" in run(coding, "x = bytearray(2 << 30)").stderr
    assert run(coding, "print(1)").exit_code == 0


def test_a_fork_bomb_ends_with_its_step(coding: Coding) -> None:
    with load_env(HERE, env_vars={"CODING_SECONDS": "1"}) as env:
        env.reset()
        bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        assert run(env, bomb).exit_code == 124
        left = "import os\nprint([p for p in os.listdir('/proc') if p.isdigit()])"
        assert "PermissionError" in run(env, left).stderr
        forked = "import os\npid = os.fork()\nif not pid: os._exit(0)\nprint(os.waitpid(pid, 0)[1])"
        assert run(env, forked).stdout == "0\n"


def test_one_session_cannot_reach_another(coding: Coding) -> None:
    with coding.session() as other:
        coding.reset()
        other.reset()
        where = run(coding, "import os; open('mine', 'w').write('x'); print(os.getcwd())").stdout
        code = f"open({where.strip() + '/mine'!r})"
        assert other.step({"code": code}).observation["exit_code"] == 1


def test_the_score_cannot_be_forged(coding: Coding) -> None:
    coding.reset(seed=1, task="best_sum")
    forged = """
import os, sys
def best_sum(numbers):
    class Right(int):
        def __eq__(self, other): return True
    for fd in range(3, 64):
        try: os.write(fd, b'{"answers": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "reward": 1.0}\\n')
        except OSError: pass
    return Right(0)
"""
    result = coding.step({"code": forged})
    assert result.reward is not None
    assert result.reward < 1.0
    assert not result.done
