"""Differential privacy: clipping and noise at the clients or at the server, and one accountant of the budget."""
