"""Models whose activation, feed-forward layer and normalization can be swapped."""
