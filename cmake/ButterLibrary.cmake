# butter_shared, all layers in one shared library; and butter::butter, the library as others see it: that one with
# BUTTER_SHARED, else the archives.
#
# What the shared library shows is marked BUTTER_API (include/butter/export.h); layers are compiled with all else hidden,
# and butter.map keeps back what the headers of other libraries leave in them.
get_property(butter_layers GLOBAL PROPERTY BUTTER_LAYERS)
set(butter_objects "")
foreach(layer IN LISTS butter_layers)
  list(APPEND butter_objects $<TARGET_OBJECTS:${layer}>)
endforeach()
add_library(butter_shared SHARED ${butter_objects})
# For the libraries that the layers stand on: their archives have nothing left to give.
target_link_libraries(butter_shared PRIVATE butter_capi butter_options)
target_link_options(butter_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/butter.map)
set_target_properties(butter_shared PROPERTIES OUTPUT_NAME butter VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/butter.map)
if(NOT BUTTER_SHARED)
  set_target_properties(butter_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

add_library(butter_public INTERFACE)
add_library(butter::butter ALIAS butter_public)
target_include_directories(butter_public INTERFACE ${CMAKE_SOURCE_DIR}/include)
target_include_directories(butter_public SYSTEM INTERFACE ${BUTTER_EXPECTED_INCLUDE})
if(BUTTER_SHARED)
  target_link_libraries(butter_public INTERFACE butter_shared)
else()
  target_link_libraries(butter_public INTERFACE $<LINK_ONLY:butter_capi>)
endif()
