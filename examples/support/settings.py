"""Settings that must not change between the parts of one experiment."""

import reprlib

from support.errors import UserError

LONGEST = 60


def refuse_others(where, former, settings):
    """Raises a `UserError` that names the differing settings.

    Args:
        where: string, what has the former settings.
        former, settings: dicts of JSON values.
    """
    names = sorted({*former, *settings})
    differing = [name for name in names if former.get(name) != settings.get(name)]
    if differing:
        values = ", ".join(
            f"{name} was {_short(former.get(name))} and is {_short(settings.get(name))}" for name in differing
        )
        raise UserError(f"{where} holds results of other settings ({values}): choose another --output, or --overwrite.")


def _short(value):
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = shortener.maxlong = LONGEST
    return shortener.repr(value)
