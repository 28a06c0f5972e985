// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/multi_target_end.inl - closes the target that simd/multi_target_begin.inl opened
#if defined(PERGRAD_TARGET)
#if PERGRAD_TARGET != PERGRAD_OWN_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
#undef PERGRAD_TARGET
#undef PERGRAD_KERNELS
#undef PERGRAD_VECTOR_BYTES
#undef PERGRAD_VECTOR_REGISTERS
#endif  // PERGRAD_TARGET
