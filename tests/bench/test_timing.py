import time

from cvm.bench.timing import Timing, summary, timed


def test_calls_are_counted_but_for_the_first_and_fill_the_time():
    calls = []
    start = time.perf_counter()
    timing = timed(lambda: calls.append(0), 0.02)
    assert time.perf_counter() - start >= 0.02
    assert timing.calls == len(calls) - 1 > 5
    assert 0 < timing.least <= timing.quartile <= timing.median <= timing.upper_quartile
    assert timing.cpu > 0


def test_a_long_call_is_repeated_nevertheless():
    calls = []
    assert timed(lambda: calls.append(0), 0).calls == 5
    assert len(calls) == 6


def test_waiting_takes_time_but_no_processor_time():
    timing = timed(lambda: time.sleep(0.002), 0)
    assert timing.least >= 2e6
    assert timing.cpu < timing.least


def test_rounds_are_summed_up_by_their_medians_and_the_least_of_all():
    rounds = [
        Timing(10, 5.0, 6.0, 7.0, 8.0, 3.0),
        Timing(20, 4.0, 9.0, 50.0, 99.0, 1.0),
        Timing(5, 6.0, 7.0, 8.0, 9.0, 2.0),
    ]
    assert summary(rounds) == Timing(35, 4.0, 7.0, 8.0, 9.0, 2.0)
