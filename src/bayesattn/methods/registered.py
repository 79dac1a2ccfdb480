"""The registry of methods. A new method is a file in this package that adds itself here, and a line in `__init__`."""

from bayesattn.methods.base import Method
from bayesattn.registry import Registry

METHODS: Registry[Method] = Registry("method")
