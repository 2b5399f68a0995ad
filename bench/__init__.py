"""The benchmarks (``make bench``), and the experiments of the papers behind tbloom (``make paper``)."""
