"""The days and hours that rollups answer for and the stretches between them cover a window once, however full of holes it is."""

import random
from itertools import pairwise

from analytics.fresh_hours import DAY_NS, HOUR_NS, MOST_STRETCHES, Block, condition, days, stretches


def hours_of(*numbers: int) -> list[Block]:
    return [Block(number * HOUR_NS, (number + 1) * HOUR_NS) for number in numbers]


def test_hours_and_stretches_cover_the_window_once() -> None:
    low, high = HOUR_NS // 3, 10 * HOUR_NS + 5
    hours = hours_of(1, 2, 3, 6, 9)
    found = stretches(hours, low, high)
    assert found == [(low, HOUR_NS), (4 * HOUR_NS, 6 * HOUR_NS), (7 * HOUR_NS, 9 * HOUR_NS), (10 * HOUR_NS, high)]
    assert sum(end - first for first, end in found) + len(hours) * HOUR_NS == high - low


def test_no_fresh_hour_leaves_the_whole_window_and_only_fresh_ones_leave_nothing() -> None:
    assert stretches([], 5, 9) == [(5, 9)]
    assert stretches(hours_of(0, 1), 0, 2 * HOUR_NS) == []
    assert condition([]) == "false"


def test_many_holes_are_joined_and_still_cover_what_is_not_fresh() -> None:
    rng = random.Random(1)
    hours = hours_of(*sorted(rng.sample(range(2000), 900)))
    found = stretches(hours, 0, 2000 * HOUR_NS)
    assert len(found) == MOST_STRETCHES
    missing = set(range(2000)) - {hour.start // HOUR_NS for hour in hours}
    covered = {hour for first, end in found for hour in range(first // HOUR_NS, end // HOUR_NS)}
    assert missing <= covered
    assert all(left[1] < right[0] for left, right in pairwise(found))


def test_a_day_stands_for_its_hours() -> None:
    blocks = [*hours_of(22, 23), Block(DAY_NS, 2 * DAY_NS, 7), *hours_of(49)]
    assert stretches(blocks, 22 * HOUR_NS, 50 * HOUR_NS) == [(48 * HOUR_NS, 49 * HOUR_NS)]
    assert days(blocks) == "(Day, Revision) IN ((toDateTime(86400, 'UTC'), 7))"
    assert days(hours_of(1)) == "false"
