/* SPDX-License-Identifier: Apache-2.0 */
/* Names of zdnn.h as vectors write them. */
#ifndef TESTEE_NAMES_H
#define TESTEE_NAMES_H

#include <stdint.h>

#include "json.h"

/* Returns the number of a value of an enum: a number as it stands, a name by zdnn.h. A name that
 * zdnn.h does not have ends the program. */
uint32_t number_of(const json *value);

#endif
