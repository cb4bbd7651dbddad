"""The runs of an experiment with several values of several options, and their names."""

import itertools


def combinations(choices, always_first=True):
    """Every combination of the values, named by its first value and by the others as far as they differ.

    Args:
        choices: dict, option -> (values, form of a value in the name).
        always_first: bool. Whether the first value is named where only others differ.

    Returns:
        Dict, label -> dict of option -> value. Values that occur twice count once.

    Example:

    >>> list(combinations({"name": (["relu", "silu"], "{}"), "seed": ([0, 1], "seed{}"), "rate": ([0.1], "lr{}")}))
    ['relu-seed0', 'relu-seed1', 'silu-seed0', 'silu-seed1']
    """
    options = list(choices)
    values = [list(dict.fromkeys(chosen)) for chosen, _ in choices.values()]
    shown = [len(chosen) > 1 for chosen in values]
    shown[0] = shown[0] or always_first or not any(shown)
    runs = {}
    for combination in itertools.product(*values):
        parts = [form.format(value) for (_, form), value in zip(choices.values(), combination, strict=True)]
        runs["-".join(itertools.compress(parts, shown))] = dict(zip(options, combination, strict=True))
    return runs
