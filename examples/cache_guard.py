"""A guard against cache penetration: look-ups of keys that don't exist never reach the database.

A cache can't help with such keys: it has nothing to keep. The guard knows all keys that exist, in 3 to 4 bytes each. It never
refuses one of them, and lets through 1 of 10,000 others.
"""

import sqlite3

from tbloom import LocalBloom


class Users:
    """The table of users, behind its guard. With several processes, give ``LocalBloom`` a ``path=``, or take ``TimeBloom``."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database, self.queries = database, 0
        self.guard = LocalBloom(granularity=None, capacity=100_000)
        self.guard.add_many(str(key) for (key,) in database.execute("SELECT id FROM users"))

    def get(self, key: int) -> str | None:
        if key not in self.guard:
            return None
        self.queries += 1
        row = self.database.execute("SELECT name FROM users WHERE id = ?", (key,)).fetchone()
        return row[0] if row else None

    def insert(self, key: int, name: str) -> None:
        self.guard.add(key)  # first: a row that the guard does not know would not be found
        self.database.execute("INSERT INTO users VALUES (?, ?)", (key, name))


def main() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    database.executemany(
        "INSERT INTO users VALUES (?, ?)", [(n, f"user {n}") for n in range(0, 100_000, 2)]
    )
    users = Users(database)
    assert all(users.get(key) for key in range(0, 1000, 2))
    print("queries for 500 keys that exist:", users.queries)
    users.queries = 0
    assert not any(users.get(key) for key in range(1, 100_000, 2))
    print("queries for 50,000 keys that do not:", users.queries)
    users.insert(7, "user 7")
    print("a new one:", users.get(7))


if __name__ == "__main__":
    main()
