"""The filter: a Bloom filter per time slice, checked and written in one script call."""
