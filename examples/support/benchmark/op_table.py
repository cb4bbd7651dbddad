"""The benchmark of ops: measuring all rows, and the table of them."""

from keras_polycom import config
from support import report
from support.benchmark import cases, stopwatch
from support.benchmark.numbers import ms, ratio, short, spread

HEADER = (
    "op",
    "version",
    "forward ms",
    "backward ms",
    "both ms",
    "quartiles of both",
    "both / relu",
    "saved / x",
    "first call s",
)


def measure(names, inputs, runner, repeats, mode):
    """Returns the rows as dicts of JSON values.

    Raises:
        UserError: a name or number that is not known or does not fit the shape.
    """
    rows = cases.make(names, inputs, mode)
    for case in rows:  # all are tried before any is timed
        _check(case, inputs, runner)
    subjects = [stopwatch.Subject(case.label, runner.measurements(case, inputs.upstream), case.road) for case in rows]
    times = stopwatch.interleaved(subjects, repeats, runner.synchronise, print_warm)
    # The rest is read afterwards: a faster version may compile on its first call, which is to be among those timed.
    results = [_row(case, own, inputs, runner) for case, own in zip(rows, times, strict=True)]
    for row in results:
        row["ratio_to_relu"] = row["both"]["median_ms"] / results[0]["both"]["median_ms"]
    return results


def print_warm(label, seconds):
    print(f"{label}: warmed up in {seconds:.1f} s", flush=True)


def _check(case, inputs, runner):
    try:
        with config.fast_roads_scope("off"):
            runner.trace(case)
    except ValueError as error:
        raise cases.cannot_take(case.op, inputs, error) from error


def _row(case, times, inputs, runner):
    with case.road():
        saved = runner.saved_bytes(case, inputs.upstream)
    return {
        "op": case.op,
        "version": case.version,
        **{name: own.summary() for name, own in times.items()},
        "saved_bytes": saved,
        "saved_per_x": None if saved is None else saved / inputs.x_bytes,
        "first_call_s": times["both"].first,
        "remark": _refusal(case, runner) if case.version == cases.AUTO else None,
    }


def _refusal(case, runner):
    """Why there is no faster version that takes these inputs, or `None`."""
    try:
        with config.fast_roads_scope("on"):
            runner.trace(case)
    except ValueError as error:
        sentence = " ".join(str(error).split())
        return sentence.partition(", but ")[2].partition(". Use ")[0] or sentence
    return None


def table(rows):
    return report.table(HEADER, [_cells(row) for row in rows])


def _cells(row):
    return (
        row["op"],
        row["version"],
        ms(row["forward"]),
        ms(row["backward"]),
        ms(row["both"]),
        spread(row["both"]),
        ratio(row["ratio_to_relu"]),
        "" if row["saved_per_x"] is None else f"{row['saved_per_x']:.2f}",
        short(row["first_call_s"]),
    )


def remarks(rows, runner):
    """Sentences to print below the table."""
    lines = [runner.saved_remark]
    reasons = {}
    for row in rows:
        if row["remark"]:
            reasons.setdefault(row["remark"], []).append(row["op"])
    lines += [f"auto is the formula for {', '.join(ops)}: {reason}." for reason, ops in reasons.items()]
    lines += [
        f"{auto['op']}: auto is slower than the formula, "
        f"{ratio(auto['both']['median_ms'] / formula['both']['median_ms'])} times."
        for auto, formula in _pairs(rows)
        if not auto["remark"] and auto["both"]["quartiles_ms"][0] > formula["both"]["quartiles_ms"][1]
    ]
    return lines


def _pairs(rows):
    """The two rows of each op of this package."""
    formulas = {row["op"]: row for row in rows if row["version"] == cases.FORMULA}
    return [(row, formulas[row["op"]]) for row in rows if row["version"] == cases.AUTO]
