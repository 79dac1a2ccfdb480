"""Models made of `torch.nn.MultiheadAttention`."""
