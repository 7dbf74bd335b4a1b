"""Feature store: mel spectrograms, tokens, waveforms and durations in memory-mapped, checksummed segment files."""
