/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a build, by the macros of the library's own makefiles. */
#ifndef BUILD_H
#define BUILD_H

/* MLI_DEBUG_MODE: the answer to a violated condition. RELEASE: OK, and nothing is written.
 * RET_CODES: its status. ASSERT: a line on stderr, and abort. DEBUG: also remarks. FULL: a
 * partial sum beyond the accumulator aborts too. */
#define DBG_MODE_RELEASE 0
#define DBG_MODE_RET_CODES 1
#define DBG_MODE_ASSERT 2
#define DBG_MODE_DEBUG 3
#define DBG_MODE_FULL 4
#ifndef MLI_DEBUG_MODE
#define MLI_DEBUG_MODE DBG_MODE_RET_CODES
#endif

/* ROUND_MODE: ties go to even (CONVERGENT) or toward plus infinity (UP). */
#define ROUND_MODE_CONVERGENT 0
#define ROUND_MODE_UP 1
#ifndef ROUND_MODE
#define ROUND_MODE ROUND_MODE_CONVERGENT
#endif

/* ACCUMULATOR: the treatment of a partial sum beyond its width. EXACT loses nothing; HARDWARE
 * wraps 32 bits and saturates 40 after every product, which no public document confirms. */
#define ACCUMULATOR_EXACT 0
#define ACCUMULATOR_HARDWARE 1
#ifndef ACCUMULATOR
#define ACCUMULATOR ACCUMULATOR_EXACT
#endif

/* CONVERSION: the arithmetic that converts integers: the documented formula rounded once, or the
 * arithmetic of the library 2.0.2 or 2.0 EA (early access). */
#define CONVERSION_EXACT 0
#define CONVERSION_LIBRARY_2_0_2 1
#define CONVERSION_LIBRARY_2_0_EA 2
#ifndef CONVERSION
#define CONVERSION CONVERSION_EXACT
#endif

#endif
