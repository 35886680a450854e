/*
 * poison.h - tells AddressSanitizer that recycled memory is off limits until it is handed out
 * again. Nothing without it. Both take addresses aligned to 8 bytes.
 */
#pragma once

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_ASAN 1
#endif
#endif

#ifdef WEIR_ASAN
#include <sanitizer/asan_interface.h>
#endif

static inline void poison(void *ptr, size_t size)
{
#ifdef WEIR_ASAN
    ASAN_POISON_MEMORY_REGION(ptr, size);
#endif
}

static inline void unpoison(void *ptr, size_t size)
{
#ifdef WEIR_ASAN
    ASAN_UNPOISON_MEMORY_REGION(ptr, size);
#endif
}
