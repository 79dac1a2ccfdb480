"""The registry of methods. A new method is a file in this package that adds itself here, and a line in `__init__`."""

from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.registry import Registry

METHODS: Registry[Method] = Registry("method")
