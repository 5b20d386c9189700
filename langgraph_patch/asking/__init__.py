"""Ask a model: again in another form if it refuses, and nothing of what it did not finish."""
