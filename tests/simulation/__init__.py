"""A network that is played move by move, against a real server: see ``faults`` for the moves, ``accounts`` for the promises."""
