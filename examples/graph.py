"""A graph traversal with a visited set that workers share: each node is expanded once.

The visited set of a large graph is what fills memory first. In a filter it takes 3 to 4 bytes a node, it grows as needed, and any
number of workers add to it. The error rate is the share of nodes that may be left out.
"""

import os
from collections.abc import Callable, Iterable
from multiprocessing import get_context

import redis

from tbloom import TimeBloom

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")


def visit(neighbours: Callable[[int], Iterable[int]]) -> int:
    """Expands nodes from the list that all workers share, until there are none; returns how many."""
    count = 0
    with (
        redis.Redis.from_url(URL) as queue,
        TimeBloom(queue, "visited", granularity=None) as visited,
    ):
        # redis-py 8 sends a call again that blocks for 5 seconds (its socket_timeout) or longer.
        while (popped := queue.brpop(["nodes"], timeout=1)) is not None:
            found = [*neighbours(int(popped[1]))]
            new = [node for node, is_new in zip(found, visited.add_many(found)) if is_new]
            if new:
                queue.lpush("nodes", *new)
            count += 1
    return count


def links(node: int) -> list[int]:
    """Some graph with many ways to each node."""
    return [2 * node % 20_000, (3 * node + 1) % 20_000]


def main() -> None:
    with (
        redis.Redis.from_url(URL) as queue,
        TimeBloom(queue, "visited", granularity=None) as visited,
    ):
        visited.add(1)
        queue.lpush("nodes", 1)
    with get_context("spawn").Pool(2) as workers:
        print("nodes that were expanded:", sum(workers.map(visit, [links] * 2)))


if __name__ == "__main__":
    main()
