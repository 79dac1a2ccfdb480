"""Small reference models, made of ordinary torch layers so that `ba.convert` makes them Bayesian."""
