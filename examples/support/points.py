"""Samples of functions of several variables: targets made of random Fourier modes, and batches of points."""

import dataclasses

import numpy as np

from support.batches import ImageBatches


class FourierTarget:
    """A random function of `dimensions` variables,

    ```
    f(x) = sum_j a_j cos(pi w_j . x + phi_j),    a_j = +-1,  w_j in {-1, 1}^dimensions,  phi_j in [0, 2 pi)
    ```

    Args:
        dimensions, modes: integers, the numbers of variables and of terms.
        number: integer. The same three numbers make the same function.
    """

    def __init__(self, dimensions, modes, number):
        rng = np.random.default_rng([dimensions, modes, number])
        self.frequencies = rng.choice([-1.0, 1.0], (dimensions, modes))
        self.amplitudes = rng.choice([-1.0, 1.0], modes)
        self.phases = rng.uniform(0, 2 * np.pi, modes)

    def __call__(self, points):
        """Values (points,) at `points` (points, dimensions)."""
        return np.cos(np.pi * points @ self.frequencies + self.phases) @ self.amplitudes


@dataclasses.dataclass
class Samples:
    """Points (points, dimensions) and the values there (points, 1), both float32."""

    points: np.ndarray
    values: np.ndarray

    in_memory = True

    def __len__(self):
        return len(self.points)


def draw(target, counts, seed):
    """Samples of a target at points drawn evenly from [-1, 1]^dimensions, in the units of the first samples.

    Args:
        target: `FourierTarget`.
        counts: sequence of integers, the numbers of points of each set.
        seed: integer or sequence of integers, of the points.

    Returns:
        List of `Samples`. The values of the first have mean 0 and standard deviation 1; those of the others are shifted
        and scaled as these were.
    """
    rng = np.random.default_rng(seed)
    points = [rng.uniform(-1, 1, (count, len(target.frequencies))) for count in counts]
    values = [target(these) for these in points]
    mean, std = values[0].mean(), values[0].std()
    return [
        Samples(these.astype("float32"), ((those - mean) / std).astype("float32")[:, None])
        for these, those in zip(points, values, strict=True)
    ]


class PointBatches(ImageBatches):
    """Batches of points with values, shuffled as `ImageBatches` are.

    Args:
        samples: `Samples`.
        batch_size, seed: integers.
        training: bool. Whether the points are shuffled in every epoch, and those left over left out.
    """

    def __init__(self, samples, batch_size, seed=0, training=False):
        super().__init__(samples, batch_size, 0.0, 1.0, num_classes=None, seed=seed, training=training)

    def _load(self, rows, numbers):
        return self.images.points[rows], self.images.values[rows]
