"""Rollouts of 24 simulated nodes with kills at random moments: what no weather and no kill may lead to.

200 seeds and 660 nodes: benchmarks/rollout_simulated.py.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from unit.simulatedfleet import Story, tell

pytestmark = pytest.mark.slow
SEEDS = range(20)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[int, "Future[Story]"]:
    with ThreadPoolExecutor(max_workers=3) as pool:
        return {seed: pool.submit(tell, tmp_path_factory.mktemp(f"seed{seed}"), seed) for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_weather_and_no_kill_breaks_more_than_the_budget_and_the_batch_in_flight(
    seed: int, stories: dict[int, "Future[Story]"]
) -> None:
    told = stories[seed].result()
    assert told.faults == [], (told.policy, [run.out[-3000:] for run in told.runs])


def test_the_seeds_kill_and_break(stories: dict[int, "Future[Story]"]) -> None:
    """Else the sentences above would hold of nothing."""
    told = [story.result() for story in stories.values()]
    assert sum(run.killed for story in told for run in story.runs) >= len(told) // 5
    assert sum(len(run.broken) for story in told for run in story.runs) >= len(told) // 3
    assert any(story.policy["batch"] == 1 and story.runs[0].broken for story in told)
