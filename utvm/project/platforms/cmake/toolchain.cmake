# The compiler for {{ board.name }}: {{ toolchain.packages | join(" and ") }} in Debian.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR {{ board.cpu_row.core }})
# Nothing can be linked before there is a linker script.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_COMPILER {{ toolchain.prefix }}gcc)
set(CMAKE_ASM_COMPILER {{ toolchain.prefix }}gcc)
set(CMAKE_C_FLAGS_INIT "{{ cpu_flags | join(" ") }}")
set(CMAKE_ASM_FLAGS_INIT "{{ cpu_flags | join(" ") }}")
