# Finds nvcc and enables CUDA for our own programs: sets pergrad_has_cuda, and makes the target pergrad_cuda_dev.

find_program(PERGRAD_NVCC nvcc HINTS /usr/local/cuda/bin /opt/cuda/bin DOC "The CUDA compiler")
if(NOT PERGRAD_NVCC)
  if(NOT PERGRAD_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "PERGRAD_CUDA is ${PERGRAD_CUDA}, but nvcc is neither in PATH nor in /usr/local/cuda/bin; "
      "install the CUDA toolkit (Debian: nvidia-cuda-toolkit, from non-free) or set PERGRAD_NVCC")
  endif()
  message(STATUS "pergrad: no nvcc, so nothing is built for CUDA")
  return()
endif()

# The GPUs of this machine would do for a developer; a build that travels says what it is for.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 87-real 90-real 110 CACHE STRING "Orin, Hopper, Thor, and PTX for what comes later")
endif()
set(CMAKE_CUDA_COMPILER ${PERGRAD_NVCC})
enable_language(CUDA)
set(pergrad_has_cuda ON)

# What our own CUDA programs are compiled with.
add_library(pergrad_cuda_dev INTERFACE)
target_link_libraries(pergrad_cuda_dev INTERFACE pergrad::pergrad)
# Not cuda_std_20: CMake 3.25 does not know it of nvcc 13.
target_compile_options(pergrad_cuda_dev INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -Werror all-warnings>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PERGRAD_NATIVE}>>:-Xcompiler=-march=native>)
