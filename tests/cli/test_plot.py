"""The reward plot: its size, its labels, and what its columns say."""

import pytest

from rayfine_env.cli.plot import reward_plot


def rows(rewards: list[float], width: int = 80) -> list[str]:
    return reward_plot(rewards, width).plain.splitlines()


@pytest.mark.parametrize("count", [1, 2, 69, 70, 1000])
@pytest.mark.parametrize("width", [20, 80])
def test_it_fits_its_width(count: int, width: int) -> None:
    drawn = rows([float(n % 7) for n in range(count)], width)
    assert len(drawn) == 9
    assert all(len(row) <= width for row in drawn[:-1])
    assert f"reward of {count} episodes" in drawn[-1]


def test_columns_rise_with_rewards_and_dots_follow_their_mean() -> None:
    drawn = rows([0.0, 1.0, 2.0, 3.0])
    assert drawn[0].startswith("        3 ┤")
    assert drawn[7].startswith("        0 ┤")
    plots = [row.partition("┤")[2].ljust(4) for row in drawn[:8]]
    heights = [sum(plot[column] != " " for plot in plots) for column in range(4)]
    assert heights == sorted(heights)
    dots = [next(n for n, plot in enumerate(plots) if plot[column] == "•") for column in range(4)]
    assert dots == sorted(dots, reverse=True)


@pytest.mark.parametrize("rewards", [[5.0], [5.0, 5.0, 5.0], [-1e300, 1e300], [-3.0, -2.5]])
def test_odd_rewards_are_drawn_too(rewards: list[float]) -> None:
    assert "•" in "".join(rows(rewards))
