"""Where attention happens: scores → posterior → weights → values, and the KL on the side."""

from bayesattn.attention.functional import attend, attend_scores

__all__ = ["attend", "attend_scores"]
