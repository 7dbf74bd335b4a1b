"""`myxtts collect`: cuts long recordings into clips in pauses, finds their texts and writes a manifest."""
