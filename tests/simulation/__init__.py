"""A network that is played move by move, against a real server: see ``player`` for the moves, ``accounts`` for the promises."""
