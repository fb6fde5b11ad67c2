"""The games by themselves, and a match of two sessions."""

import random
from typing import Any

import pytest

from rayfine_env import RayfineError, load_env

from .board import Board, choose
from .env import ConnectFour, Drop, Guess, NumberGuess


def test_a_number_is_found_by_halving() -> None:
    env = NumberGuess()
    for seed in range(20):
        env.reset(seed=seed, most=100)
        low, high = 1, 100
        for _ in range(7):
            middle = (low + high) // 2
            seen = env.step(Guess(number=middle))
            if seen.terminated:
                break
            low, high = (middle + 1, high) if seen.text == "higher" else (low, middle - 1)
        assert seen.reward == 1.0


@pytest.mark.parametrize(
    "moves",
    [[0, 1, 0, 1, 0, 1, 0], [0, 6, 1, 6, 2, 6, 3], [0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3],
     [6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3]],
    ids=["upright", "level", "rising", "falling"],
)  # fmt: skip
def test_four_in_a_line_win(moves: list[int]) -> None:
    assert Board(moves[:-1]).winner() is None
    board = Board(moves)
    assert board.winner() == 0
    assert board.legal() == []
    board.undo()
    assert board.text() == Board(moves[:-1]).text()


def test_columns_do_not_run_into_each_other() -> None:
    assert Board([0, 1, 0, 1, 0, 1, 2, 0, 0, 3, 0]).winner() is None


def played(one: int, two: int, seed: int) -> int | None:
    rng, board = random.Random(seed), Board()
    while board.legal():
        board.drop(choose(board, (one, two)[board.turn], rng))
    return board.winner()


def test_who_looks_further_wins_more() -> None:
    results = [played(*levels, seed) for seed in range(6) for levels in ((4, 0), (4, 1))]
    assert results.count(0) >= 10


def test_a_win_is_taken_and_a_loss_is_blocked() -> None:
    rng = random.Random(1)
    assert choose(Board([0, 6, 0, 6, 0, 5]), 2, rng) == 0
    assert choose(Board([0, 6, 0, 6, 0]), 2, rng) == 0


def test_an_episode_against_an_opponent() -> None:
    env, rng, rewards = ConnectFour(), random.Random(0), []
    for seed in range(6):
        seen = env.reset(seed=seed, opponent=0)
        assert seen.you == seen.to_move
        while not seen.terminated:
            seen = env.step(Drop(column=choose(env._board, 3, rng)))
        rewards.append(seen.reward)
    assert rewards.count(1.0) >= 4
    env._board = Board([0] * 6)
    lost = env.step(Drop(column=0))
    assert (lost.reward, lost.terminated, lost.note) == (-1.0, True, "0 is no move here")


def test_a_match_of_two_sessions(tmp_path: Any) -> None:
    with load_env("games:Match", env_vars={"TMPDIR": str(tmp_path)}) as one, one.session() as two:
        one.reset(table="t", side="X")
        two.reset(table="t", side="O")
        with one.session() as third, pytest.raises(RayfineError, match="the seat O is taken"):
            third.reset(table="t", side="O")
        assert two.step({"column": 0}).observation["note"] == "it is not your turn"
        for column in (0, 1, 2):
            one.step({"column": column})
            assert two.step({"column": column}).observation["to_move"] == "X"
        assert one.step({"column": 3}).reward == 1.0
        end = two.step({"column": None})
        assert (end.reward, end.terminated) == (-1.0, True)

        one.reset(table="u", side="X")
        two.reset(table="u", side="O")
        two.close()
        left = one.step({"column": 0})
        assert (left.truncated, left.observation["note"]) == (True, "the other player has left")
