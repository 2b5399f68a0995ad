"""A network that is played move by move: every order of calls, faults and clocks, against a real server."""
