"""Tensor shapes in signatures: jaxtyping where it is installed, plain tensors where it is not.

The core depends on torch alone, so the annotations must cost nothing without jaxtyping. In the tests
jaxtyping and beartype check every one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ModuleNotFoundError:

        class _Unchecked:
            """Stands for `Float[Tensor, "..."]` and means `Tensor`."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Shaped = _Unchecked

__all__ = ["Bool", "Float", "Int", "Shaped"]
