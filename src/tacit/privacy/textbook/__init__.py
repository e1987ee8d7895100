"""The textbook mechanisms with their exact privacy, and their losses."""
