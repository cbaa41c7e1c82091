// BUTTER_API: what the shared library shows. C and C++.
#ifndef BUTTER_EXPORT_H
#define BUTTER_EXPORT_H

#if defined(__GNUC__)
#define BUTTER_API __attribute__((visibility("default")))
#else
#define BUTTER_API
#endif

#endif
