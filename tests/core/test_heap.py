"""DueHeap: earliest first, and small however much is cancelled."""

from __future__ import annotations

import random

from procsched.core.heap import DueHeap


class Item:
    """Anything that has an entry. Comparing two of them is an error."""

    entry = 0

    def __lt__(self, other: object) -> bool:
        raise TypeError("items are never compared")


def heap() -> DueHeap:
    return DueHeap(lambda entry: entry[3].entry == entry[2])


def push(queue: DueHeap, due: int, seq: int, priority: int = 2) -> Item:
    item = Item()
    item.entry = seq
    queue.push(due, priority, seq, item)
    return item


def drained(queue: DueHeap) -> list[int]:
    seqs = []
    while (entry := queue.peek()) is not None:
        assert queue.pop() is entry
        seqs.append(entry[2])
    return seqs


def test_a_tie_is_settled_by_priority_then_arrival() -> None:
    """A thousand entries with one due time come out in the order in which they went in."""
    queue = heap()
    items = [push(queue, 5, seq) for seq in range(1, 1001)]
    urgent = push(queue, 5, 1001, priority=1)
    assert drained(queue) == [urgent.entry, *(item.entry for item in items)]


def test_what_was_cancelled_never_comes_up() -> None:
    queue = heap()
    items = [push(queue, random.Random(seq).randrange(1000), seq) for seq in range(1, 501)]
    for item in items[::3]:
        item.entry = 0
        queue.forget()
    queue.check_valid()
    assert sorted(drained(queue)) == [item.entry for item in items if item.entry]


def test_cancelling_keeps_it_small() -> None:
    """A hundred thousand far entries, scheduled and cancelled, leave next to nothing behind."""
    queue = heap()
    longest = 0
    keeper = push(queue, 10**18, 1)
    for seq in range(2, 100_000):
        item = push(queue, 10**15 + seq, seq)
        item.entry = 0
        queue.forget()
        longest = max(longest, len(queue._entries))
    assert longest < 200
    assert len(queue) == 1
    assert drained(queue) == [keeper.entry]


def test_who_asks_for_the_time_of_the_next_pays_for_few_stale_ones() -> None:
    """It is never late, and exact once the stale ones in front are gone."""
    queue = heap()
    items = [push(queue, due, due) for due in range(1, 301)]
    for item in items[:140]:
        item.entry = 0
        queue.forget()
    before = len(queue._entries)
    assert queue.next_key() <= 141
    assert 0 < before - len(queue._entries) <= 32
    seen = [queue.next_key() for _ in range(10)]
    assert seen == sorted(seen) and seen[-1] == 141
    queue.check_valid()


def test_what_is_stale_and_far_off_is_left_alone_by_who_looks_for_what_is_due() -> None:
    queue = heap()
    gone = push(queue, 50, 1)
    push(queue, 60, 2)
    gone.entry = 0
    queue.forget()
    assert queue.pop_due(49) is None
    assert len(queue._entries) == 2
    assert queue.pop_due(60)[2] == 2
    assert len(queue._entries) == len(queue) == 0
    queue.check_valid()


def test_an_empty_heap_has_nothing_to_show() -> None:
    queue = heap()
    assert queue.peek() is None and len(queue) == 0
    queue.check_valid()
