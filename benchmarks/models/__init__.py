"""Models of the benchmarks: data, nets and training."""
