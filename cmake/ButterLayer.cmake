# butter_layer(NAME DEPENDS lower layers...)
#
# Makes the library butter_NAME of src/NAME/**.cc (tests and benchmarks left out). The header
# src/NAME/x.h is included as "NAME/x.h", and only by layers that depend on NAME: each layer has an
# include folder of its own, which holds one link to its sources, so that an include that skips an
# edge finds no file. Files are globbed: a family or a format is added by adding its file.
#
# A layer's own CMakeLists.txt, if it has one, adds libraries and per-file instruction sets; it may set
# test_libraries, which its tests alone are linked with.
function(butter_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  set(source_dir ${CMAKE_SOURCE_DIR}/src/${name})
  set(edge_dir ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${edge_dir})
  file(CREATE_LINK ${source_dir} ${edge_dir}/${name} SYMBOLIC)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${source_dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|testing|bench)\\.cc$")

  set(target butter_${name})
  add_library(${target} STATIC ${sources})
  add_library(butter::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${edge_dir}>)
  target_include_directories(${target} SYSTEM PUBLIC $<BUILD_INTERFACE:${BUTTER_EXPECTED_INCLUDE}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:butter_options>)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} PUBLIC butter_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY BUTTER_LAYERS ${target})

  if(EXISTS ${source_dir}/CMakeLists.txt)
    include(${source_dir}/CMakeLists.txt)
  endif()

  if(BUTTER_TESTS AND tests)
    file(GLOB_RECURSE testing CONFIGURE_DEPENDS ${source_dir}/*_testing.cc)
    add_executable(butter_${name}_test ${tests} ${testing})
    target_link_libraries(butter_${name}_test PRIVATE ${target} butter_options butter_test_support ${test_libraries}
      GTest::gtest GTest::gmock GTest::gtest_main)
    gtest_discover_tests(butter_${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

# What every test sees: where the test data is, and the header-only helpers of tests/support.
if(BUTTER_TESTS)
  add_library(butter_test_support INTERFACE)
  target_include_directories(butter_test_support INTERFACE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(butter_test_support INTERFACE
    BUTTER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" BUTTER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  enable_testing()
endif()
