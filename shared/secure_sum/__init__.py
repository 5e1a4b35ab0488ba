"""Secure sums: a server learns the sum of the devices' integers, and no single device's.

Practical secure aggregation (K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning", CCS 2017, figure 4), with masks between neighbours instead of all pairs in large rounds (J. Bell et
al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020). docs/privacy.md says who
learns what.

    shamir.py       shares of a secret
    keys.py         agreement, encryption between devices, and signatures
    masks.py        masks as streams of integers, and vectors of integers on the wire
    quantiser.py    gradients as small integers
    coordinates.py  which entries a round sums
    neighbours.py   which devices of a round share masks, and how many must stay
    messages.py     bytes of each step
    participant.py  the device's end
    aggregator.py   the server's end

Both ends are state machines without sockets, clock or event loop. Imports protocol, identity and model.
"""
