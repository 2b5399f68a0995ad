"""The filter: a Bloom filter per time slice. One script call checks all live slices and adds new items."""
