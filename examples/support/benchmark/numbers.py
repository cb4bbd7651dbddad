"""How numbers are printed: three digits, and never a power of ten."""

import math


def short(value):
    """
    >>> [short(value) for value in (0.0123456, 1.23456, 123.456, 12345.6)]
    ['0.0123', '1.23', '123', '12346']
    """
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, digits)}f}"


def ms(summary):
    return short(summary["median_ms"])


def spread(summary):
    return " to ".join(short(value) for value in summary["quartiles_ms"])


def ratio(value):
    return f"{value:.2f}"
