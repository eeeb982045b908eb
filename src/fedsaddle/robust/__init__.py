"""Protection from hostile clients: bounds on what they send, robust aggregation, and attacks to try them with."""
