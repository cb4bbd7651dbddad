"""What a model's activations or normalizations are, and what became of each."""

import collections
import dataclasses

REPLACED = "replaced"
KEPT = "kept"
CANNOT = "cannot replace"


@dataclasses.dataclass(frozen=True)
class Site:
    """One place in a model where an activation or a normalization is used.

    Attributes:
        path: string. Names of nested models and of the layer, and the argument if it is one: `"block/conv.activation"`.
        found: string. What is there: `"relu"`.
        outcome: `"replaced"`, `"kept"` or `"cannot replace"`.
        detail: string. What has replaced it, or why it could not be replaced.
    """

    path: str
    found: str
    outcome: str = KEPT
    detail: str = ""


class Report(tuple):
    """The `Site`s of a model in the order in which it computes; printed, it is a table."""

    __slots__ = ()

    def outcomes(self, outcome):
        """The sites with this outcome."""
        return Report(site for site in self if site.outcome == outcome)

    @property
    def replaced(self):
        return self.outcomes(REPLACED)

    def found(self):
        """How often each name occurs, as text: `"relu (49), softmax (1)"`."""
        counts = collections.Counter(site.found for site in self)
        return ", ".join(f"{name} ({count})" for name, count in counts.most_common()) or "none"

    def __str__(self):
        rows = [("where", "found", "outcome", ""), *(dataclasses.astuple(site) for site in self)]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )
