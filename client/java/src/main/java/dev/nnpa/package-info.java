// SPDX-License-Identifier: Apache-2.0

/**
 * zDNN on an emulated accelerator, from Java.
 *
 * <p>{@link dev.nnpa.Session} is a guest on a machine, {@link dev.nnpa.Zdnn} has zDNN's operations,
 * {@link dev.nnpa.Ztensors} creates and frees ztensors, {@link dev.nnpa.Descriptors} has the
 * functions that need no server. Messages of the wire contract are in {@code dev.nnpa.zdnn.v1} and
 * {@code dev.nnpa.mli.v1}.
 */
package dev.nnpa;
