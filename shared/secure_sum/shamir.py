"""Shares of a secret: any `threshold` of them give the secret, and fewer say nothing about it.

A. Shamir, "How to share a secret", Communications of the ACM 22(11), 1979: a share is the value of a random
polynomial of degree threshold - 1, whose value at 0 is the secret.
"""

from collections.abc import Callable, Mapping, Sequence

PRIME = 2**256 + 297
"""The smallest prime above all secrets of 32 bytes."""

SHARE_BYTES = 33


def split(
    secret: int, shares: int, threshold: int, below: Callable[[int], int], prime: int = PRIME
) -> list[int]:
    """Return the shares 1 to `shares` of `secret`, which is below `prime`.

    `below(n)` returns a random integer from 0 to n - 1.
    """
    assert 0 <= secret < prime
    assert 1 <= threshold <= shares < prime
    coefficients = [secret, *(below(prime) for _ in range(threshold - 1))]
    return [evaluate(coefficients, place, prime) for place in range(1, shares + 1)]


def evaluate(coefficients: Sequence[int], place: int, prime: int = PRIME) -> int:
    """Return the polynomial's value at `place`, by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % prime
    return value


def combine(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret of at least threshold shares: place -> share.

    The Lagrange interpolation at 0: sum_j y_j prod_{m != j} x_m / (x_m - x_j).
    """
    secret = 0
    for place, share in shares.items():
        above = below = 1
        for other in shares:
            if other != place:
                above = above * other % prime
                below = below * (other - place) % prime
        secret = (secret + share * above * pow(below, -1, prime)) % prime
    return secret
