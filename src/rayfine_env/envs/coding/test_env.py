"""The coding environment by itself, without a server."""

from collections.abc import Iterator

import pytest

from .env import CodeAction, CodeObservation, CodingEnvironment
from .tasks import TASKS

SOLUTIONS = {
    "reverse_words": "def reverse_words(text): return ' '.join(text.split()[::-1])",
    "run_lengths": (
        "from itertools import groupby\n"
        "def run_lengths(text): return [[a, len(list(b))] for a, b in groupby(text)]"
    ),
    "balanced": (
        "def balanced(text):\n    while '()' in text or '[]' in text:\n"
        "        text = text.replace('()', '').replace('[]', '')\n    return not text"
    ),
    "best_sum": (
        "def best_sum(n): return max(sum(n[a:b]) for a in range(len(n)) "
        "for b in range(a + 1, len(n) + 1))"
    ),
    "most_common": "def most_common(w): return min(w, key=lambda x: (-w.count(x), x))",
}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[CodingEnvironment]:
    monkeypatch.setenv("CODING_SECONDS", "30")
    env = CodingEnvironment()
    yield env
    env.close()


def run(env: CodingEnvironment, code: str) -> CodeObservation:
    return env.step(CodeAction(code=code))


def test_the_context_lasts_as_long_as_the_episode(env: CodingEnvironment) -> None:
    env.reset(episode_id="e1")
    run(env, "x = 6\ndef twice(n): return 2 * n")
    assert run(env, "print(twice(x))").stdout == "12\n"
    assert (env.state.episode_id, env.state.step_count) == ("e1", 2)
    env.reset()
    seen = run(env, "print(x)")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "NameError: name 'x' is not defined" in seen.stderr


def test_an_exception_is_told_with_its_line(env: CodingEnvironment) -> None:
    env.reset()
    seen = run(env, "print('before')\n1 / 0")
    assert (seen.exit_code, seen.stdout) == (1, "before\n")
    assert seen.stderr.startswith('Traceback (most recent call last):\n  File "<code>", line 2')
    assert seen.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert env.state.last_exit_code == 1
    assert run(env, "import sys; sys.exit(7)").exit_code == 7
    assert "SyntaxError" in run(env, "def (").stderr


def test_files_last_as_long_as_the_episode(env: CodingEnvironment) -> None:
    env.reset()
    run(env, "open('kept', 'w').write('yes')")
    assert run(env, "print(open('kept').read())").stdout == "yes\n"
    env.reset()
    assert "FileNotFoundError" in run(env, "open('kept')").stderr


def test_code_that_is_late_or_ends_itself_loses_its_context(
    env: CodingEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODING_SECONDS", "0.5")
    env.reset()
    late = run(env, "print('begun', flush=True)\nwhile True: pass")
    assert (late.exit_code, late.stdout) == (124, "begun\n")
    assert "stopped after 0.5 s; what the code had defined is gone" in late.stderr
    monkeypatch.setenv("CODING_SECONDS", "30")
    env.reset()
    run(env, "x = 1")
    ended = run(env, "import os; os.kill(os.getpid(), 9)")
    assert ended.exit_code == 137
    assert "NameError" in run(env, "x").stderr


def test_too_much_output_is_cut_off(env: CodingEnvironment) -> None:
    env.reset()
    seen = run(env, "print('x' * 1_000_000)")
    assert seen.exit_code == 0
    assert seen.stdout.endswith("… (cut off)\n")
    assert len(seen.stdout) < 70_000


def test_every_task_has_hidden_tests(env: CodingEnvironment) -> None:
    assert SOLUTIONS.keys() == TASKS.keys() == env.tasks().keys()
    for name, solution in SOLUTIONS.items():
        env.reset(seed=3, task=name)  # type: ignore[arg-type]
        wrong = run(env, f"def {name}(x): return None")
        assert (wrong.reward, wrong.terminated) == (0.0, False)
        right = run(env, solution)
        assert (right.reward, right.terminated) == (1.0, True), name


def test_a_task_is_drawn_by_the_seed(env: CodingEnvironment) -> None:
    drawn = [env.reset(seed=seed, task="any").task for seed in (1, 2, 3, 4, 5, 1)]
    assert drawn[0] == drawn[-1]
    assert len(set(drawn)) > 1


def test_smolagents_as_the_executor(
    env: CodingEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODING_EXECUTOR", "smolagents")
    env.reset(task="most_common")
    assert run(env, "x = 20\nprint(x + 1)").stdout.strip() == "21"
    assert run(env, SOLUTIONS["most_common"]).reward == 1.0
    assert run(env, "import os").exit_code == 1
    monkeypatch.setenv("CODING_EXECUTOR", "magic")
    with pytest.raises(ValueError, match="'process' or 'smolagents', not 'magic'"):
        env.reset()
