# SPDX-License-Identifier: Apache-2.0
# find_package(mli) gives the targets mli::mli and mli::mli_static.
get_filename_component(_mli_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET mli::mli)
  add_library(mli::mli SHARED IMPORTED)
  set_target_properties(mli::mli PROPERTIES
    IMPORTED_LOCATION "${_mli_prefix}/lib/libmli.so.0"
    IMPORTED_SONAME "libmli.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_mli_prefix}/include")
  add_library(mli::mli_static STATIC IMPORTED)
  set_target_properties(mli::mli_static PROPERTIES
    IMPORTED_LOCATION "${_mli_prefix}/lib/libmli.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_mli_prefix}/include"
    INTERFACE_LINK_LIBRARIES "m")
endif()
unset(_mli_prefix)
