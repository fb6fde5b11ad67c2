"""What calls take is told with their results, and summed up in /metrics."""

from tests.isolation.instances import Handle, metric, opened


def test_the_usage_of_a_step_is_in_its_info(faulty: Handle) -> None:
    with opened(faulty, 2) as (idle, busy):
        usages = []
        for session, action in ((idle, ""), (busy, "nap")):
            session.reset()
            usages.append(session.step(action).info["usage"])
        quick, slow = usages
        assert slow["wall_s"] >= 0.5 > quick["wall_s"]
        assert slow["cpu_s"] < 0.4
        assert all(usage["peak_memory_bytes"] > 1 << 20 for usage in usages)
        assert all(usage["queue_s"] >= 0 for usage in usages)


def test_metrics_sum_up_all_sessions_the_ended_ones_too(faulty: Handle) -> None:
    before = metric(faulty.instance, "rayfine_calls_total")
    with opened(faulty, 2) as (one, other):
        one.do("nap")
        other.count()
        assert metric(faulty.instance, "rayfine_sessions") == 3
        one.close()
        assert metric(faulty.instance, "rayfine_wall_seconds_total") >= 0.5
        assert metric(faulty.instance, "rayfine_calls_total") >= before + 4
        assert metric(faulty.instance, "rayfine_cpu_seconds_total") >= 0
