"""File formats and crash safety: atomic replacement, folder locks, strict JSON, safetensors."""
