"""Hardware detection (CPUs, memory, GPUs, cluster), device placement plan, and TensorFlow distribution strategy."""
