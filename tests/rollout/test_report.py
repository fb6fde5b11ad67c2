"""The report: its figures, its page in a real browser, and that nothing in an observation runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from rayfine_env.rollout.directory import RunDirectory
from rayfine_env.rollout.plan import Plan
from rayfine_env.rollout.policy import Turn
from rayfine_env.rollout.report import curve, histogram, pass_at, report
from rayfine_env.rollout.trajectory import Cause, Fault, Step, Stop
from tests.rollout.environments import WALK
from tests.rollout.playing import play

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
HOSTILE = (
    "</script><script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'>",
    "<svg onload='window.owned = 1'>",
    "javascript:window.owned=1",
    "\u2028window.owned = 1//",
    "{{data}} {{policy}} ${window.owned = 1}",
    '"]}; window.owned = 1; //',
    "<!--<script>",
    "<style>* { display: none }</style>",
    "<meta http-equiv=refresh content='0; url=about:blank'>",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))
        yield found
        found.close()


def shown(browser: Browser, path: Path) -> tuple[Page, list[str]]:
    """The page of a file, and everything that its console complained of."""
    page = browser.new_page(viewport={"width": 1240, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    return page, said


def a_run(path: Path, policy: Any = "random", **more: Any) -> Path:
    play(WALK, policy, episodes=24, group_size=4, mode="inprocess", run_dir=path, **more)
    return path


@pytest.mark.browser
def test_the_page_shows_the_run_and_walks_through_an_episode(
    tmp_path: Path, browser: Browser
) -> None:
    def policy(turn: Turn) -> Any:
        if turn.trajectory.sample == 3:
            raise ValueError("no idea")
        return {"left": turn.seed % 2 == 0}

    (tmp_path / "page.html").write_text(report([a_run(tmp_path / "run", policy)]))
    page, said = shown(browser, tmp_path / "page.html")
    text = page.inner_text("main")
    assert "24\nepisodes" in text
    assert "6\nfailed" in text
    assert "no idea" in text
    assert page.locator("circle.dot").count() == 18
    titles = page.locator("h2").all_inner_texts()
    for title in ("Reward distribution", "pass@k", "Failures by cause", "Groups", "Slowest"):
        assert any(each.startswith(title) for each in titles), title
    page.locator("button.link").first.click()
    assert page.inner_text("#where") == "start"
    page.click("#next")
    assert page.inner_text("#where").startswith("step 1 of ")
    assert '"at":' in page.inner_text("#viewer")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#where") == "start"
    page.select_option("#episode", label=page.locator("#episode option").last.inner_text())
    assert said == []
    if folder := os.environ.get("RAYFINE_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/report.png", full_page=True)


@pytest.mark.browser
def test_two_runs_side_by_side(tmp_path: Path, browser: Browser) -> None:
    runs = [a_run(tmp_path / "one"), a_run(tmp_path / "two", lambda turn: {"left": True})]
    (tmp_path / "page.html").write_text(report(runs))
    page, said = shown(browser, tmp_path / "page.html")
    assert page.locator(".key").all_inner_texts() == ["one", "two"]
    assert "24 / 24" in page.inner_text("main")
    page.select_option("#run", "1")
    page.click("#next")
    assert '"left": true' in page.inner_text("#viewer")
    assert said == []


@pytest.mark.browser
def test_nothing_in_an_observation_runs(tmp_path: Path, browser: Browser) -> None:
    plan = Plan.of([{"id": HOSTILE[1]}], 3, 1, 0, 0, {"policy": HOSTILE[0], "environment": {}})
    directory = RunDirectory(tmp_path / "run", plan).open(resume=False)
    records = [plan.record(n) for n in range(3)]
    for record in records:
        record.observation = {text: text for text in HOSTILE}
        record.steps = [Step(action=text, observation=[text], reward=1.0) for text in HOSTILE]
        record.reward, record.stop, record.policy = 1.0, Stop.TERMINATED, HOSTILE[0]
    records[0].error = Fault(Cause.AUTHOR, HOSTILE[2], HOSTILE[0])
    directory.append(records, [])
    directory.close()
    (tmp_path / "page.html").write_text(report([tmp_path / "run"]))
    page, said = shown(browser, tmp_path / "page.html")
    for _ in HOSTILE:
        page.click("#next")
        assert HOSTILE[0] in page.inner_text("h1")
    page.wait_for_timeout(200)
    assert page.evaluate("window.owned") is None
    assert page.evaluate("document.scripts.length") == 2
    assert page.locator("img").count() == 0
    assert page.locator("main").is_visible()
    # Were a script to get in after all, the page's own policy would not let it run.
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.owned") is None
    assert len(said) == 1
    assert "Content Security Policy" in said[0]


def test_figures() -> None:
    assert pass_at([[1.0, 0.0], [0.0, 0.0]], 2) == [[1, 0.25], [2, 0.5]]
    assert pass_at([[0.5, 1.0]], 2, threshold=1.0) == [[1, 0.5], [2, 1.0]]
    assert pass_at([[1.0]], 2) == [[1, 1.0]]
    assert sum(count for _, _, count in histogram([1.0, 2.0, 2.0, 9.0])) == 4
    assert histogram([3.0, 3.0]) == [[3.0, 4.0, 2]]
    assert histogram([]) == []
    assert curve([1.0, 3.0]) == [[0, 1.0, 1.0], [1, 3.0, 2.0]]
    assert len(curve([0.5] * 100_000)) <= 2000
