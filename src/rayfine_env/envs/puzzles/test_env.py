"""The puzzles by themselves, and a small real endpoint that answers them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .env import Answer, PuzzleEnvironment, make
from .kinds import KINDS, TaskType

LEVELS = range(1, 11)


@pytest.mark.parametrize("kind", KINDS)
def test_puzzles_come_from_their_seed_and_are_judged_exactly(kind: TaskType) -> None:
    for level in LEVELS:
        made = make(kind, level, 7)
        assert made.prompt == make(kind, level, 7).prompt
        assert made.prompt != make(kind, level, 8).prompt
        assert made.accepts(made.answer)
        assert made.accepts(f"I thought of 1 and 2.\nANSWER: {made.answer}\n")
        for wrong in ("", "ANSWER:", "1", "no idea", made.answer + " 1", made.answer[:-1] + "x"):
            assert not made.accepts(wrong), wrong
    size = (lambda text: text.count(".")) if kind == "sudoku" else len
    assert size(make(kind, 10, 1).prompt) > size(make(kind, 1, 1).prompt)


def test_another_right_answer_is_right() -> None:
    """Of a SAT puzzle with free variables every satisfying assignment counts."""
    rights = 0
    for seed in range(20):
        made = make("sat", 1, seed)
        for number in range(32):
            said = " ".join(str(v if number >> v & 1 else -v) for v in range(1, 6))
            rights += made.accepts(said)
    assert rights > 20


def test_an_episode_is_one_answer() -> None:
    env = PuzzleEnvironment()
    seen = env.reset(seed=3, episode_id="e", task_type="sorting", level=2)
    assert seen.task_id == env.state.task_id == "sorting-2-3"
    right = env.puzzle("sorting", 2, 3)
    assert right["prompt"] == seen.prompt
    after = env.step(Answer(text=right["answer"]))
    assert (after.reward, after.terminated, env.state.step_count) == (1.0, True, 1)
    assert env.verify(right["answer"], "sorting", 2, 3)
    env.reset(seed=3, task_type="sorting")
    assert env.step(Answer(text="1, 2")).reward == 0.0


class Endpoint(BaseHTTPRequestHandler):
    """Solves every puzzle of the first hundred seeds; for the prompt of seed 2 it fails."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        seed = next(n for n in range(100) if make("sat", 1, n).prompt == prompt)
        assert (body["model"], body["temperature"]) == ("tiny", 0)
        assert self.headers["Authorization"] == "Bearer key"
        answer = "ANSWER: 1 2 3" if seed == 1 else make("sat", 1, seed).answer
        said = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        self.send_response(500 if seed == 2 else 200)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_evaluate_scores_a_model(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUTES_API_KEY", "key")
    monkeypatch.setenv("MODEL", "tiny")
    env = PuzzleEnvironment()
    found = asyncio.run(
        env.evaluate(task_type="sat", num_samples=5, base_url=endpoint, temperature=0)
    )
    assert (found["task_name"], found["total_score"]) == ("sat", 3.0)
    assert (found["num_evaluated"], found["num_failed"]) == (4, 1)
    assert found["success_rate"] == 0.75
    assert [each["score"] for each in found["details"]] == [1.0, 0.0, None, 1.0, 1.0]
    assert "500" in found["details"][2]["error"]


def test_evaluate_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="name a model and its endpoint"):
        asyncio.run(PuzzleEnvironment().evaluate())
