"""Kernels of int8 convolutions for cores with Arm's DSP extension."""
