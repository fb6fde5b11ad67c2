"""Limits: what each process may use, and what a cgroup holds in sum."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfine_env.authoring.project import DeployConfig
from rayfine_env.server.cgroup import Cgroup, homes, plan
from rayfine_env.server.limits import describe_limits, instance_cgroup, workspace_bytes

MEGABYTE = 1 << 20


def limited(deploy: str, script: str, **options: bool) -> str:
    """What a script printed that began with its limits."""
    begin = f"""
import errno, os, resource, sys, tempfile
from rayfine_env.authoring.project import DeployConfig
from rayfine_env.server.limits import limit_process
limit_process(DeployConfig({deploy}), **{options!r})
"""
    return subprocess.check_output([sys.executable, "-c", begin + script], text=True).strip()


SHOW = """
for kind in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_DATA,
             resource.RLIMIT_FSIZE):
    soft, hard = resource.getrlimit(kind)
    assert soft == hard or kind == resource.RLIMIT_DATA
    print(soft)
"""


def test_what_the_project_file_does_not_name_stays_open() -> None:
    assert limited("", SHOW).split() == ["0", "4096", "-1", "-1"]


def test_what_it_names_holds() -> None:
    shown = limited("memory='1Gi', ephemeral_storage_limit='6Gi'", SHOW).split()
    assert shown == ["0", "4096", str(1 << 30), str(6 << 30)]


def test_untrusted_code_gets_the_defaults() -> None:
    assert limited("", SHOW, untrusted=True).split() == ["0", "4096", str(2 << 30), str(256 << 20)]
    assert workspace_bytes(DeployConfig()) == 256 << 20
    assert workspace_bytes(DeployConfig(ephemeral_storage="1Gi")) == 1 << 30


def test_limits_add_up_only_downwards() -> None:
    script = """
limit_process(DeployConfig(memory='4Gi'))
print(resource.getrlimit(resource.RLIMIT_DATA)[0])
"""
    assert limited("memory='1Gi'", script) == str(1 << 30)


@pytest.mark.parametrize(
    ("bomb", "met"),
    [
        ("bytearray(1 << 30)", "MemoryError"),
        ("[open('/dev/null') for _ in range(10_000)]", "EMFILE"),
        ("tempfile.TemporaryFile().write(bytes(64 << 20))", "EFBIG"),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (99999, 99999))", "ValueError"),
    ],
)
def test_bombs_meet_their_limit(bomb: str, met: str) -> None:
    script = f"""
try:
    {bomb}
except (MemoryError, ValueError) as exc:
    print(type(exc).__name__)
except OSError as exc:
    print(errno.errorcode[exc.errno])
"""
    deploy = "memory='512Mi', ephemeral_storage='32Mi'"
    drop = "os.getuid() or os.setresuid(65532, 65532, 65532)\n"  # root may raise any limit
    assert limited(deploy, drop + script) == met


# -- cgroups


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """One of 40 processes and 64 MB; where none can be had there is nothing to test."""
    made = Cgroup(40, 64 * MEGABYTE)
    if made.lacking is not None:
        pytest.skip(made.lacking)
    yield made
    made.close()


def test_a_fork_bomb_stays_small(cgroup: Cgroup) -> None:
    script = """
import os
made = []
try:
    while len(made) < 1000:
        made.append(os.posix_spawn('/bin/sleep', ['sleep', '1000'], {}))
except BlockingIOError:
    print(len(made))
for pid in made:
    os.kill(pid, 9)
"""
    run = subprocess.run(
        cgroup.command([sys.executable, "-c", script]), capture_output=True, text=True
    )
    assert int(run.stdout) < 40


def test_a_memory_bomb_is_counted(cgroup: Cgroup) -> None:
    before = cgroup.oom_kills()
    # Locked, or a machine with swap would just swap.
    script = "import ctypes; ctypes.CDLL(None).mlockall(2); bytearray(256 << 20)"
    run = subprocess.run(cgroup.command([sys.executable, "-c", script]))
    assert run.returncode == -9
    assert cgroup.oom_kills() == before + 1


def test_nothing_is_left_of_a_cgroup(cgroup: Cgroup) -> None:
    show = cgroup.command(["/bin/cat", "/proc/self/cgroup"])
    inside = subprocess.check_output(show, text=True)
    name = f"rayfine-{os.getpid()}-"
    assert name in inside
    cgroup.close()
    cgroup.close()
    assert [left for home, _ in _plan() for left in home.glob(f"{name}*")] == []


def test_what_a_killed_server_left_is_swept(cgroup: Cgroup) -> None:
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    left = [home / f"rayfine-{ended.pid}-1" for home, _ in _plan()]
    for place in left:
        place.mkdir()
    Cgroup(10, MEGABYTE).close()
    assert not any(place.exists() for place in left)


def _plan() -> list[tuple[Path, dict[str, int]]]:
    about = (Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"))
    return list(plan(homes(*map(Path.read_text, about)), 1, 1))


def test_an_instance_has_room_for_its_sessions(cgroup: Cgroup) -> None:
    made = instance_cgroup(100, DeployConfig())
    limits = [file.read_text() for home, _ in _plan() for file in home.glob("rayfine-*/pids.max")]
    made.close()
    assert str(1024 + 8 * 100) in "".join(limits).split()


NO_CGROUPS = ("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/sys", "--")


def test_without_cgroups_it_starts_all_the_same() -> None:
    script = """
from rayfine_env.server.cgroup import Cgroup
made = Cgroup(10, 10)
print(made.command(["x"]), made.oom_kills() >= 0, made.lacking)
made.close()
"""
    said = subprocess.check_output([*NO_CGROUPS, sys.executable, "-c", script], text=True)
    assert said.startswith("['x'] True ")
    assert "; run as root, or in a cgroup that is delegated" in said


def test_every_limit_is_described() -> None:
    described = describe_limits()
    assert len(described) == 2
    assert described["memory, file size and open files of each process"] is None


def mount(root: str, where: str, kind: str, options: str = "rw") -> str:
    return f"30 23 0:26 {root} {where} rw,nosuid - {kind} {kind} {options}"


def test_version_2_gets_a_sibling(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "terminal.scope"
    own.mkdir(parents=True)
    (own / "cgroup.type").touch()
    mounts = "\n".join((mount("/", "/", "ext4"), mount("/", str(tmp_path), "cgroup2")))
    found = homes("0::/user.slice/terminal.scope\n", mounts)
    assert found == {"": own}
    assert list(plan(found, 9, 8)) == [(own.parent, {"pids.max": 9, "memory.max": 8})]
    assert list(plan(found, 9, None)) == [(own.parent, {"pids.max": 9})]


def test_the_root_of_version_2_has_it_inside(tmp_path: Path) -> None:
    found = homes("0::/\n", mount("/", str(tmp_path), "cgroup2"))
    assert list(plan(found, 9, None)) == [(tmp_path, {"pids.max": 9})]


def test_version_1_has_one_for_each_kind() -> None:
    membership = "4:memory:/docker/abc\n3:cpu,pids:/docker/abc/worker\n0::/\n"
    mounts = "\n".join(
        (
            mount("/docker/abc", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
            mount("/docker/abc", "/sys/fs/cgroup/pids", "cgroup", "rw,cpu,pids"),
        )
    )
    found = homes(membership, mounts)
    assert found["memory"] == Path("/sys/fs/cgroup/memory")
    assert found["pids"] == Path("/sys/fs/cgroup/pids/worker")
    assert [limits for _, limits in plan(found, 9, 8)] == [
        {"pids.max": 9},
        {"memory.limit_in_bytes": 8},
    ]
