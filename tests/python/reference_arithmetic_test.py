"""The arithmetic under sluice.reference: fused multiply-adds against exact rationals, Philox
against its published answers."""

from fractions import Fraction

import numpy as np
from reference_support import reference

fma32, fma64 = reference.arithmetic.fma32, reference.arithmetic.fma64
log2_64 = reference.log2.log2_64
philox = reference.philox.philox
weight_of = reference.weight.weight_of


def nearest_f32(exact: Fraction) -> np.float32:
    """A rational rounded to binary32, to nearest even, by comparing with both neighbours."""
    largest = Fraction(float(np.finfo(np.float32).max))
    step = Fraction(2) ** 104  # between the largest number and the one that would follow
    if abs(exact) >= largest + step / 2:
        return np.float32(np.inf if exact > 0 else -np.inf)
    guess = np.float32(np.clip(float(exact), -float(largest), float(largest)))
    near = [guess, *np.nextafter(guess, np.float32([-np.inf, np.inf]))]
    near = [x for x in near if np.isfinite(x)]
    return min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def random_f32(random: np.random.Generator, n: int, low: int, high: int) -> np.ndarray:
    """Any significands, exponents in [low, high)."""
    significand = random.integers(1 << 23, size=n, dtype=np.uint32)
    # Many zeros in a row make ties and near-ties likely.
    significand &= ~np.uint32(0) << random.integers(23, size=n, dtype=np.uint32)
    exponent = random.integers(low + 127, high + 127, size=n, dtype=np.uint32)
    sign = random.integers(2, size=n, dtype=np.uint32) << np.uint32(31)
    return (sign | exponent << np.uint32(23) | significand).view(np.float32)


def check(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    got = fma32(a, b, c)
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact != 0:  # the sign of a zero is not a question of rounding
            expected = nearest_f32(exact)
            assert got[i] == expected, (a[i], b[i], c[i], got[i], expected)


def test_fma32_rounds_once():
    random = np.random.default_rng(1)
    check(*(random_f32(random, 4000, -4, 4) for _ in range(3)))
    check(*(random_f32(random, 2000, low, 127) for low in (-126, -126, -127)))
    # Subnormal results, and sums far apart.
    for a_and_b, of_c in (((-80, -60), (-127, -120)), ((-30, 0), (0, 60)), ((60, 64), (120, 127))):
        check(*(random_f32(random, 2000, *range_) for range_ in (a_and_b, a_and_b, of_c)))


def test_fma32_where_rounding_twice_is_wrong():
    # (1 + k 2^-12)^2 ends in 2^-24 for an odd k: it is a tie of binary32. A c below 2^-53 decides
    # it, and the binary64 sum does not see that c.
    random = np.random.default_rng(2)
    wrong_twice = 0
    for _ in range(2000):
        a = np.float32(1 + (2 * random.integers(800) + 1) * 2.0**-12)
        c = np.float32(random.choice([-1, 1]) * 2.0 ** -random.integers(54, 140))
        expected = nearest_f32(Fraction(float(a)) ** 2 + Fraction(float(c)))
        assert fma32(a, a, c) == expected
        wrong_twice += np.float32(float(a) * float(a) + float(c)) != expected
    assert wrong_twice > 500


def test_fma32_beside_finite_numbers():
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    one, largest = np.float32(1), np.finfo(np.float32).max
    assert fma32(largest, largest, -inf) == -inf
    assert fma32(inf, one, one) == inf
    assert np.isnan(fma32(inf, one, -inf)) and np.isnan(fma32(nan, one, one))
    zeros = fma32(-one, np.float32(0), np.float32([-0.0, 0.0]))
    assert list(np.signbit(zeros)) == [True, False]
    # A product too small for binary32 keeps its sign.
    tiny = np.float32(2.0**-149)
    assert np.signbit(fma32(-tiny, tiny, np.float32(0)))


def test_fma64_rounds_once():
    assert fma64(1 + 2.0**-52, 1 - 2.0**-52, -1.0) == -(2.0**-104)
    assert fma64(0.1, 10.0, -1.0) == float(Fraction(0.1) * 10 - 1) != 0.1 * 10.0 - 1.0
    assert log2_64(1.0) == 0.0 and log2_64(2.0**23) == 23.0


def test_philox_gives_the_published_words():
    # kat_vectors of Random123: philox4x32 10.
    ones = 0xFFFFFFFF
    for seed, counter, words in (
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((1 << 64) - 1, (ones,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        c0, c1, c2, c3 = counter
        block = philox(seed, c0, np.array([c1], dtype=np.uint64), c2, c3)
        assert [int(word) for word in block[:, 0]] == list(words)


def test_weight_never_rises_as_t_falls():
    t = np.linspace(0, -41, 200_001, dtype=np.float32)
    w = weight_of(t)
    assert int(w[0]) == reference.weight.FULL_WEIGHT and int(w[-1]) == 0
    assert (w[1:] <= w[:-1]).all()
    normal = t > -12
    relative = w[normal] / np.exp2(t[normal].astype(np.float64)) / 2.0**40 - 1
    assert np.abs(relative).max() <= 1.7e-7
