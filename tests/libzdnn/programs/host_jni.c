/* SPDX-License-Identifier: Apache-2.0 */
/* What Host.java calls. */
#include <jni.h>

#include "sum.h"

JNIEXPORT jboolean JNICALL Java_Host_sumIsRight(JNIEnv *environment, jclass host) {
  (void)environment;
  (void)host;
  return sum_is_right() ? JNI_TRUE : JNI_FALSE;
}
