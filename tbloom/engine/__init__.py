"""What passes between a store and Redis: requests and replies as data, tokens, and who sends them. Knows no store."""
