# The install rules; the package config for find_package(butter), and butter.pc for pkg-config.
get_property(butter_layers GLOBAL PROPERTY BUTTER_LAYERS)
install(TARGETS butter RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# What `butter eval --text sample` reads; cli/CMakeLists.txt tells the program where that is.
install(DIRECTORY tests/data/text/ DESTINATION ${CMAKE_INSTALL_DATADIR}/butter/text)
install(DIRECTORY include/butter DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Made by the program (cli/CMakeLists.txt).
set(butter_made_dir ${CMAKE_BINARY_DIR}/share)
install(FILES ${butter_made_dir}/butter.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${butter_made_dir}/butter.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME butter)
install(FILES ${butter_made_dir}/butter.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _butter)
install(FILES ${butter_made_dir}/butter.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# What stands behind the archives, by the names of pkg-config. The shared library has found its own.
set(butter_pc_packages fmt libhwy libpcre2-8 libutf8proc libxxhash libzstd libcrypto libzip libcurl)
list(REVERSE butter_layers)  # a static library stands before those that it uses
if(BUTTER_SHARED)
  install(TARGETS butter_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set(butter_libraries libbutter${CMAKE_SHARED_LIBRARY_SUFFIX})
  set(butter_pc_libs "-L\${libdir} -lbutter")
  set(butter_pc_packages "")
else()
  install(TARGETS ${butter_layers} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/butter)
  list(TRANSFORM butter_layers REPLACE "(.+)" "butter/${CMAKE_STATIC_LIBRARY_PREFIX}\\1${CMAKE_STATIC_LIBRARY_SUFFIX}"
    OUTPUT_VARIABLE butter_libraries)
  list(TRANSFORM butter_layers PREPEND "-l" OUTPUT_VARIABLE butter_pc_libs)
  list(JOIN butter_pc_libs " " butter_pc_libs)
  set(butter_pc_libs "-L\${libdir}/butter ${butter_pc_libs} -lstdc++ -lm -pthread")
endif()

include(CMakePackageConfigHelpers)
set(butter_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/butter)
configure_package_config_file(cmake/butter-config.cmake.in ${CMAKE_BINARY_DIR}/butter-config.cmake
  INSTALL_DESTINATION ${butter_config_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/butter-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/butter-config.cmake ${CMAKE_BINARY_DIR}/butter-config-version.cmake
  DESTINATION ${butter_config_dir})

list(JOIN butter_pc_packages " " butter_pc_requires)
file(RELATIVE_PATH butter_prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/butter.pc.in ${CMAKE_BINARY_DIR}/butter.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/butter.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
