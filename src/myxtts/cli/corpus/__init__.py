"""Commands that make a corpus and its features."""
