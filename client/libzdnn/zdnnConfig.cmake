# SPDX-License-Identifier: Apache-2.0
# find_package(zdnn) gives the targets zdnn::zdnn and zdnn::zdnn_static.
get_filename_component(_zdnn_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET zdnn::zdnn)
  add_library(zdnn::zdnn SHARED IMPORTED)
  set_target_properties(zdnn::zdnn PROPERTIES
    IMPORTED_LOCATION "${_zdnn_prefix}/lib/libzdnn.so.0"
    IMPORTED_SONAME "libzdnn.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_zdnn_prefix}/include")
  add_library(zdnn::zdnn_static STATIC IMPORTED)
  set_target_properties(zdnn::zdnn_static PROPERTIES
    IMPORTED_LOCATION "${_zdnn_prefix}/lib/libzdnn.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_zdnn_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
unset(_zdnn_prefix)
