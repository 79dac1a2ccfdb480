"""Autoencoders of texts: a transformer with one of five bottlenecks, the rows T, VT, VTP, VTS and NVAE of the NVIB paper."""
