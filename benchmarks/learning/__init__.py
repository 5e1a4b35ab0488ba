"""What people learn with Edgeflock and with its rivals from equally many gradients: a bench, cell by cell.

    python -m benchmarks.learning list | run | report

A cell is (task, n devices, data, arm, seed). `tasks` says what is learned from which `data`, `shares` how
data lie on devices, `arms` who learns: the product as it ships, or one of `rivals`. `cells` orders the cells,
`play` computes the figures of one, `runner` runs them in processes and appends each to a file, `report` and
`figure` show them.
"""
