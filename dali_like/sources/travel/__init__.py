"""What makes a user's callable travel to workers by value, and what cannot travel."""
