"""Commands that use a trained model: they speak, explain and measure."""
