/* SPDX-License-Identifier: Apache-2.0
 * How functions of the C library are interposed.
 */
#ifndef NNPA_TRAP_PRELOAD_H
#define NNPA_TRAP_PRELOAD_H

#define EXPORTED __attribute__((visibility("default")))
/* A second name of a function, with its attributes where the compiler can copy them: GCC 9. */
#if defined(__has_attribute) && __has_attribute(copy)
#define ALSO_KNOWN_AS(name) __attribute__((alias(#name), copy(name)))
#else
#define ALSO_KNOWN_AS(name) __attribute__((alias(#name)))
#endif

/* The C library's own function of this name: FUNCTION(dlopen, void *, const char *, int). */
#define FUNCTION(name, result, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

#endif
