"""Parts of the report of a run: its charts, its sounds, the verdict, and several runs side by side."""
