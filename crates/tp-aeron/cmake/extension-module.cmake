# Read by every CMake run that the rusteron crates start (see .cargo/config.toml).
#
# Aeron's C code ends up inside a Python extension module, so it must be position independent,
# and wheels travel, so it must run on any CPU of the architecture: rusteron's release profile
# asks for -march=native, and the last -march on the command line wins.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_compile_options(-march=x86-64 -mtune=generic)
elseif(CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "aarch64")
  add_compile_options(-march=armv8-a)
endif()
