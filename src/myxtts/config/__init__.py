"""Configuration: schema of all settings, layered resolution (defaults, presets, YAML, arguments, flags), presets."""
