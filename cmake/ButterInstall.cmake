# The install rules, and the package config for find_package(butter).

# Installed: the archives of all layers, and their libraries by name, as butter-config.cmake puts them together.
get_property(butter_layers GLOBAL PROPERTY BUTTER_LAYERS)
install(TARGETS butter RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# What `butter eval --text sample` reads; cli/CMakeLists.txt tells the program where that is.
install(DIRECTORY tests/data/text/ DESTINATION ${CMAKE_INSTALL_DATADIR}/butter/text)
install(TARGETS ${butter_layers} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/butter)
install(DIRECTORY include/butter DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

list(REVERSE butter_layers)  # a static library stands before those that it uses
string(REPLACE ";" " " BUTTER_INSTALLED_LAYERS "${butter_layers}")
include(CMakePackageConfigHelpers)
set(butter_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/butter)
configure_package_config_file(cmake/butter-config.cmake.in ${CMAKE_BINARY_DIR}/butter-config.cmake
  INSTALL_DESTINATION ${butter_config_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/butter-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/butter-config.cmake ${CMAKE_BINARY_DIR}/butter-config-version.cmake
  DESTINATION ${butter_config_dir})
