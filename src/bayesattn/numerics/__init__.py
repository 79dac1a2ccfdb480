"""Numbers: formulas that hold at the extremes, dtypes, and noise. The definitions; `kernels` has fast copies of some."""
