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
    "features": 128, "features_padded": 128, "values": 128, "values_padded": 128, "rows": gpu.ROWS, "total_is_given": False,
}  # fmt: skip
CASES = {
    "all": {},
    "gamma": {"noise": 3, "statistics": 6, "has_prior": False, "wants_exponentials": False},
    "decoding": {
        "noise": 3,
        "statistics": 0,
        "has_prior": False,
        "wants_total": False,
        "total_is_given": True,
        "rows": gpu.FEW_ROWS,
    },
}
TYPES = {"allowed": "*u8", "key_lengths": "*i64", "seed": "i64"}
WHOLE = {"batch", "heads", "groups", "queries", "keys", "dropout_threshold", "blocks"}
REAL = {"scale", "dropout_factor", "log_concentration"}


def type_of(name: str) -> str:
    if name in CONSTANTS:
        return "constexpr"
    if name in WHOLE or name[-2:] in ("_b", "_h", "_r", "_c"):
        return "i32"
    return "fp32" if name in REAL else TYPES.get(name, "*fp32")


def main() -> None:
    shared = {}
    kernels = (gpu_kernels.forward_kernel, gpu_kernels.backward_query_kernel, gpu_kernels.backward_key_kernel)
    for case, changes in CASES.items():
        for kernel in kernels[:1] if case == "decoding" else kernels:
            constants = {name: value for name, value in (CONSTANTS | changes).items() if name in kernel.arg_names}
            source = ASTSource(kernel, {name: type_of(name) for name in kernel.arg_names}, constants)
            compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=gpu.OPTIONS)
            shared[f"{kernel.__name__}, {case}"] = compiled.metadata.shared
    print(json.dumps(shared))


if __name__ == "__main__":
    main()
