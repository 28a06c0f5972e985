# Builds for a 64-bit Arm Linux, such as a Jetson's, on another machine. Needs g++-aarch64-linux-gnu (Debian's name).
#
#   PERGRAD_AARCH64_ROOT  a folder that has libraries as that machine has them, usr/lib/aarch64-linux-gnu/libz.a say.
#                         Not needed where they are installed for both processors (zlib1g-dev:arm64)
#   PERGRAD_AARCH64_CUDA  a folder with lib/libcudart_static.a for that processor. Not needed where nvcc's toolkit has
#                         targets/sbsa-linux or targets/aarch64-linux
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PERGRAD_AARCH64_ROOT PERGRAD_AARCH64_CUDA PERGRAD_NVCC)

# What is missing, in a line each, before a compiler says it in many.
find_program(PERGRAD_AARCH64_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT PERGRAD_AARCH64_COMPILER)
  message(FATAL_ERROR "aarch64: there is no ${CMAKE_CXX_COMPILER} (Debian: g++-aarch64-linux-gnu)")
endif()
set(libraries ${PERGRAD_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
if(NOT EXISTS ${libraries}/libz.a AND NOT EXISTS ${libraries}/libz.so)
  message(FATAL_ERROR "aarch64: there is no libz.a in ${libraries}: install zlib1g-dev:arm64, or set "
                      "PERGRAD_AARCH64_ROOT to a folder that has it in usr/lib/aarch64-linux-gnu")
endif()

# One file is copied there, whose libraries may be older.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static-libstdc++ -static-libgcc")

if(PERGRAD_AARCH64_ROOT)
  list(APPEND CMAKE_FIND_ROOT_PATH ${PERGRAD_AARCH64_ROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# nvcc's toolkit may have no headers for that processor: those of this one are the same.
find_program(PERGRAD_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda
  PATH_SUFFIXES bin DOC "The CUDA compiler")
if(PERGRAD_NVCC)
  get_filename_component(toolkit ${PERGRAD_NVCC} REALPATH)
  get_filename_component(toolkit ${toolkit}/../.. ABSOLUTE)
else()
  set(toolkit /usr/local/cuda)
endif()
set(CMAKE_CUDA_FLAGS_INIT "-target-dir x86_64-linux")
set(runtime ${PERGRAD_AARCH64_CUDA}/lib/libcudart_static.a)
foreach(target IN ITEMS sbsa-linux aarch64-linux)
  if(EXISTS ${toolkit}/targets/${target}/lib/libcudart_static.a)
    set(CMAKE_CUDA_FLAGS_INIT "-target-dir ${target}")
    if(NOT PERGRAD_AARCH64_CUDA)
      set(runtime ${toolkit}/targets/${target}/lib/libcudart_static.a)
    endif()
  endif()
endforeach()
if(PERGRAD_CUDA STREQUAL "ON" AND NOT EXISTS ${runtime})
  message(FATAL_ERROR "aarch64: there is no CUDA runtime of that processor: set PERGRAD_AARCH64_CUDA to a folder with "
                      "lib/libcudart_static.a, such as the unpacked wheel nvidia-cuda-runtime for aarch64 has; see "
                      "docs/cuda.md")
endif()
if(PERGRAD_AARCH64_CUDA)
  string(APPEND CMAKE_CUDA_FLAGS_INIT " -L${PERGRAD_AARCH64_CUDA}/lib")
endif()
