"""What the user asked for: the settings, their layers, and the presets."""
