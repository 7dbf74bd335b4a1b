"""Speech over the network: an HTTP and WebSocket server, and the Wyoming protocol of Home Assistant."""
