"""What benchmark.py is made of: cases, one runner per backend, a stopwatch, training steps, and reports."""
