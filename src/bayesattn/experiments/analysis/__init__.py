"""What trained weights look like, and what priors of weights predict."""
