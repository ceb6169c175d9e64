{% include "cmake/toolchain.cmake" %}
