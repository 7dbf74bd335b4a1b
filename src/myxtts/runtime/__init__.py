"""What the machine offers, and the plan made from it."""
