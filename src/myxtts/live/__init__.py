"""The run as a live page: a local server that reads the files of a run, can stop it, and lets it speak."""
