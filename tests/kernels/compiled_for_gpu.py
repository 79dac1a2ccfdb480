"""Triton's compiler on every kernel, for a GPU that need not be there: prints, as JSON, the shared memory that each takes."""

from __future__ import annotations

import json
import os

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # what it is without the variable, which Triton warns of

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bayesattn.kernels import gpu, gpu_kernels

CONSTANTS = {
    "has_allowed": True, "has_bias": True, "has_lengths": True, "has_prior": True, "causal": True,
    "noise": 1, "generator": 0, "dropout": True, "statistics": 2, "wants_total": True, "wants_exponentials": True,
    "features": 128, "features_padded": 128, "values": 128, "values_padded": 128, "rows": gpu.ROWS,
}  # fmt: skip
TYPES = {"allowed": "*u8", "key_lengths": "*i64", "seed": "i64"}
WHOLE = {"batch", "heads", "groups", "queries", "keys", "dropout_threshold"}
REAL = {"scale", "dropout_factor", "log_concentration"}


def type_of(name: str) -> str:
    if name in CONSTANTS:
        return "constexpr"
    if name in WHOLE or name[-2:] in ("_b", "_h", "_r", "_c"):
        return "i32"
    return "fp32" if name in REAL else TYPES.get(name, "*fp32")


def main() -> None:
    shared = {}
    for kernel in (gpu_kernels.forward_kernel, gpu_kernels.backward_query_kernel, gpu_kernels.backward_key_kernel):
        source = ASTSource(kernel, {name: type_of(name) for name in kernel.arg_names}, CONSTANTS)
        compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=gpu.OPTIONS)
        shared[kernel.__name__] = compiled.metadata.shared
    print(json.dumps(shared))


if __name__ == "__main__":
    main()
