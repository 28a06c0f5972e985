# Finds nvcc and enables CUDA for our own programs: sets pergrad_has_cuda, and makes the target pergrad_cuda_dev.

find_program(PERGRAD_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda
  PATH_SUFFIXES bin DOC "The CUDA compiler")
set(pergrad_no_cuda "")
if(NOT PERGRAD_NVCC)
  set(pergrad_no_cuda "nvcc is neither in PATH nor in /usr/local/cuda/bin")
else()
  execute_process(COMMAND ${PERGRAD_NVCC} --version OUTPUT_VARIABLE pergrad_nvcc_says ERROR_QUIET)
  if(NOT pergrad_nvcc_says MATCHES "release ([0-9.]+)")
    set(pergrad_no_cuda "${PERGRAD_NVCC} does not tell its version")
  elseif(CMAKE_MATCH_1 VERSION_LESS 12.0)
    set(pergrad_no_cuda "${PERGRAD_NVCC} is of CUDA ${CMAKE_MATCH_1}, and C++20 needs 12.0 or newer")
  endif()
endif()
if(pergrad_no_cuda)
  if(NOT PERGRAD_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "PERGRAD_CUDA is ${PERGRAD_CUDA}, but ${pergrad_no_cuda}; "
      "install a CUDA toolkit (Debian 13: nvidia-cuda-toolkit, from non-free) or set PERGRAD_NVCC")
  endif()
  message(STATUS "pergrad: ${pergrad_no_cuda}, so nothing is built for CUDA")
  unset(PERGRAD_NVCC CACHE)  # looked for again
  return()
endif()

# The GPUs of this machine would do for a developer; a build that travels says what it is for.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${PERGRAD_NVCC} --list-gpu-arch OUTPUT_VARIABLE pergrad_known ERROR_QUIET)
  set(pergrad_architectures)
  foreach(each IN ITEMS 87 90 110)
    if(pergrad_known MATCHES "compute_${each}\n")
      list(TRANSFORM pergrad_architectures REPLACE "^([0-9]+)$" "\\1-real")
      list(APPEND pergrad_architectures ${each})
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${pergrad_architectures} CACHE STRING
    "Orin, Hopper and Thor as far as nvcc knows them, and PTX of the last for what comes later")
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
