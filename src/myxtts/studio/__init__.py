"""`myxtts studio`: a local page to hear, correct, split, merge, drop and record the clips of a corpus."""
